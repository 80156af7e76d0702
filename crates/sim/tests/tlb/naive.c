/* A two-level TLB in its simplest form: every entry stores the time of its last use, and the oldest is evicted.
 *
 * Input: `shape L1 BASE_SETS BASE_WAYS HUGE_SETS HUGE_WAYS` and the same for L2, with HUGE_SETS 0 for a shared array;
 * then `a PAGE SIZE` (SIZE 0: 4 KiB, 1: 2 MiB) and `i START END`. Output: one letter per access: 1, 2 or m.
 * With the argument `stack`, the output is the LRU stack distance of each access over all pages, -1 for the first
 * access to a page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX 65536
struct entry { unsigned long number; int size, used; long time; };
struct array { int sets, ways; struct entry entries[MAX]; };
static struct array arrays[2][2];
static long now;

static struct array *array_for(int level, int size) {
    return size && arrays[level][1].sets ? &arrays[level][1] : &arrays[level][0];
}

static int lookup(int level, unsigned long number, int size) {
    struct array *array = array_for(level, size);
    struct entry *set = array->entries + (number % array->sets) * array->ways, *victim = NULL;
    for (int way = 0; way < array->ways; way++)
        if (set[way].used && set[way].number == number && set[way].size == size) {
            set[way].time = now;
            return 1;
        }
    for (int way = 0; way < array->ways; way++) {
        if (!set[way].used) { victim = &set[way]; break; }
        if (!victim || set[way].time < victim->time) victim = &set[way];
    }
    *victim = (struct entry){number, size, 1, now};
    return 0;
}

static void invalidate(unsigned long start, unsigned long end) {
    for (int level = 0; level < 2; level++)
        for (int kind = 0; kind < 2; kind++)
            for (int i = 0; i < arrays[level][kind].sets * arrays[level][kind].ways; i++) {
                struct entry *entry = &arrays[level][kind].entries[i];
                unsigned long first = entry->size ? entry->number * 512 : entry->number;
                unsigned long last = entry->size ? first + 511 : first;
                if (entry->used && start < end && first < end && last >= start) entry->used = 0;
            }
}

static unsigned long stack[MAX];
static int depth;

static void stack_distance(unsigned long key) {
    int at = 0;
    while (at < depth && stack[at] != key) at++;
    printf("%d\n", at < depth ? at : -1);
    if (at == depth) depth++;
    memmove(stack + 1, stack, at * sizeof *stack);
    stack[0] = key;
}

int main(int count, char **arguments) {
    char line[256];
    int distances = count > 1 && !strcmp(arguments[1], "stack");
    while (fgets(line, sizeof line, stdin)) {
        unsigned long a, b;
        int level, shape[4], size;
        if (sscanf(line, "shape L%d %d %d %d %d", &level, shape, shape + 1, shape + 2, shape + 3) == 5) {
            arrays[level - 1][0].sets = shape[0];
            arrays[level - 1][0].ways = shape[1];
            arrays[level - 1][1].sets = shape[2];
            arrays[level - 1][1].ways = shape[3];
        } else if (sscanf(line, "i %lu %lu", &a, &b) == 2) {
            invalidate(a, b);
        } else if (sscanf(line, "a %lu %d", &a, &size) == 2) {
            unsigned long number = size ? a / 512 : a;
            now++;
            if (distances) stack_distance(number * 2 + size);
            else if (lookup(0, number, size)) putchar('1');
            else putchar(lookup(1, number, size) ? '2' : 'm');
        } else {
            return 2;
        }
    }
    return 0;
}
