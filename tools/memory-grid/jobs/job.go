package main

import (
	"fmt"
	"sort"
)

type node struct {
	left, right *node
	value       int
}

func grow(depth int) *node {
	if depth == 0 {
		return &node{value: 1}
	}
	return &node{grow(depth - 1), grow(depth - 1), depth}
}

func main() {
	groups := make([][]string, 3000)
	for n := 0; n < 300000; n++ {
		groups[n%3000] = append(groups[n%3000], fmt.Sprint("row ", n))
	}
	for _, rows := range groups {
		sort.Strings(rows)
	}
	total := 0
	for round := 0; round < 8; round++ {
		total += grow(17).value
	}
	fmt.Println(len(groups), total)
}
