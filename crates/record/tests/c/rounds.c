// Allocates and frees one block per round, in one thread, and prints the number of rounds. Usage: rounds ROUNDS
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **word) {
    long rounds = count > 1 ? atol(word[1]) : 0;
    for (long i = 0; i < rounds; i++) { char *volatile p = malloc(16 + i % 1000); if (!p) return 1; free(p); }
    printf("%ld\n", rounds);
    return 0;
}
