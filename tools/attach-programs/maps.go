// A program without a C library that maps, touches and unmaps nine pages, and counts how often.
package main

import (
	"fmt"
	"syscall"
)

func main() {
	var command string
	var number, rounds int
	for {
		if _, err := fmt.Scan(&command, &number); err != nil {
			return
		}
		for i := 0; command == "n" && i < number; i++ {
			pages, err := syscall.Mmap(-1, 0, 9*4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
			if err != nil {
				panic(err)
			}
			for at := 0; at < len(pages); at += 4096 {
				pages[at] = 1
			}
			if err := syscall.Munmap(pages); err != nil {
				panic(err)
			}
			rounds++
		}
		fmt.Println(0, 0, 0, 0, 0, 0, 0, 0, 0, rounds)
	}
}
