// Allocates blocks of 5000 bytes in a row, then some of 6000 with a pause of 30 ms before each. Usage: paused ROW RESTS
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **word) {
    if (count != 3) return 2;
    for (int i = atoi(word[1]); i > 0; i--) { char *volatile p = malloc(5000); if (!p) return 1; free(p); }
    for (int i = atoi(word[2]); i > 0; i--) { usleep(30000); char *volatile p = malloc(6000); if (!p) return 1; }
    return 0;
}
