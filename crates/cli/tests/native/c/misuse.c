// Makes the invalid free that its argument names. Prints "went on" if the allocator ignores it.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 3000 };

static void *volatile shared;
static char *many[MANY];

static void *free_shared(void *unused) { (void)unused; free(shared); return 0; }

static void elsewhere(void) {
    pthread_t thread;
    if (pthread_create(&thread, 0, free_shared, 0) || pthread_join(thread, 0)) exit(3);
}

static size_t wanted;

// Resizes a freed block. If the allocator ignores the call, the result must not be used.
static void resized(char *freed, size_t bytes) { shared = realloc(freed, bytes); }

static void grown(char *live, size_t bytes) { free(live), resized(live, bytes); }

static void *resize_shared(void *unused) { (void)unused; resized(shared, wanted); return 0; }

static void resize_elsewhere(size_t bytes) {
    pthread_t thread;
    wanted = bytes;
    if (pthread_create(&thread, 0, resize_shared, 0) || pthread_join(thread, 0)) exit(3);
}

static char *block(size_t bytes) {
    char *made = malloc(bytes);
    if (!made) exit(3);
    memset(made, 1, bytes);
    return made;
}

int main(int count, char **word) {
    const char *how = count > 1 ? word[1] : "";
    char *a = block(48), *b = block(48), *stays = block(48);
    if (!strcmp(how, "right-away")) free(a), free(a);
    else if (!strcmp(how, "later")) free(a), free(b), free(a);
    else if (!strcmp(how, "much-later")) { // meanwhile the bin took the slab's free list and handed out blocks from it
        for (int i = 0; i < MANY; i++) many[i] = block(48);
        for (int i = 0; i < MANY; i++) free(many[i]);
        for (int i = 0; i < MANY / 2; i++) many[i] = block(48);
        free(a), free(b);
        for (int i = 0; i < MANY / 2; i++) free(many[i]);
        free(b);
    } else if (!strcmp(how, "untouched")) { // the block was never written
        char *c = malloc(4000);
        free(c), free(c);
    } else if (!strcmp(how, "elsewhere-then-here")) shared = a, elsewhere(), free(a);
    else if (!strcmp(how, "here-then-elsewhere")) free(a), shared = a, elsewhere();
    else if (!strcmp(how, "elsewhere-twice")) shared = a, elsewhere(), elsewhere();
    else if (!strcmp(how, "large")) { char *c = block(300000); free(c), free(c); }
    else if (!strcmp(how, "large-elsewhere")) { char *c = block(300000); shared = c, elsewhere(), free(c); }
    else if (!strcmp(how, "huge")) { char *c = block(5 << 20); free(c), free(c); }
    else if (!strcmp(how, "idle-span")) { // meanwhile its slab was returned to the SuperSlab
        for (int i = 0; i < MANY; i++) many[i] = block(4096);
        for (int i = 0; i < MANY; i++) free(many[i]);
        free(many[MANY - 1]);
    } else if (!strcmp(how, "inside")) free(a + 16);
    else if (!strcmp(how, "never-near")) free(stays + 48);
    else if (!strcmp(how, "never-far")) free(stays + 48 * 200);
    else if (!strcmp(how, "never-near-elsewhere")) shared = stays + 48, elsewhere();
    else if (!strcmp(how, "never-far-elsewhere")) shared = stays + 48 * 200, elsewhere();
    else if (!strcmp(how, "never-far-realloc")) { if (realloc(stays + 48 * 200, 5000)) exit(4); }
    else if (!strcmp(how, "inside-elsewhere")) shared = a + 16, elsewhere();
    else if (!strcmp(how, "inside-large")) { char *c = block(300000); free(c + 4096); }
    else if (!strcmp(how, "inside-huge")) { char *c = block(5 << 20); free(c + (3 << 20)); }
    else if (!strcmp(how, "foreign")) free(&count);
    else if (!strcmp(how, "foreign-realloc")) { if (realloc(&count, 100)) exit(4); }
    else if (!strcmp(how, "realloc-grows")) grown(a, 5000);
    else if (!strcmp(how, "realloc-shrinks")) { char *c = block(4000); grown(c, 20); }
    else if (!strcmp(how, "realloc-stays")) grown(a, 40);
    else if (!strcmp(how, "realloc-stays-untouched")) { char *c = malloc(8000); grown(c, 7000); }
    else if (!strcmp(how, "realloc-elsewhere-freed")) shared = a, elsewhere(), resized(a, 5000);
    else if (!strcmp(how, "realloc-elsewhere-freed-alone")) { // if the call collected the block, the whole slab would be free
        char *c = block(24000);
        shared = c, elsewhere(), resized(c, 5000);
    } else if (!strcmp(how, "realloc-elsewhere-freed-stays")) shared = a, elsewhere(), resized(a, 40);
    else if (!strcmp(how, "realloc-elsewhere")) free(a), shared = a, resize_elsewhere(5000);
    else if (!strcmp(how, "realloc-elsewhere-stays")) free(a), shared = a, resize_elsewhere(40);
    else if (!strcmp(how, "realloc-large")) { char *c = block(300000); grown(c, 300001); }
    else if (!strcmp(how, "realloc-large-elsewhere-freed")) {
        char *c = block(300000);
        shared = c, elsewhere(), resized(c, 5000);
    } else if (!strcmp(how, "realloc-large-elsewhere-freed-stays")) {
        char *c = block(300000);
        shared = c, elsewhere(), resized(c, 300001);
    } else if (!strcmp(how, "realloc-huge")) { char *c = block(5 << 20); grown(c, (5 << 20) + 1); }
    else if (!strcmp(how, "nothing")) { // data of a live block that looks like a free block; the block is freed once
        for (int i = 0; i < MANY; i++) many[i] = malloc(64), free(many[i]), many[i] = malloc(64);
        for (int i = 0; i < MANY; i++) free(many[i]);
        char *c = block(48), *d = block(48);
        free(c), memcpy(d, c, 48), free(d); // reads freed memory, which contains the key of a free block
    } else return 2;
    // The heap is intact: no block is handed out twice, and live blocks keep their contents.
    for (int i = 0; i < MANY; i++) {
        many[i] = block(48);
        memset(many[i], i, 48);
    }
    for (int i = 0; i < MANY; i++)
        for (int at = 0; at < 48; at++) if (many[i][at] != (char)i) return 5;
    if (stays[0] != 1 || stays[47] != 1) return 6;
    puts("went on");
    return 0;
}
