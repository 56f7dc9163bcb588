/* NCCL without a GPU: the part of libnccl.so.2 that dlc calls, on the memory of the stub of the driver.

   The ranks of a communicator are processes, or threads, that map a file, whose path is the unique id. As streams of that
   stub run at once, so does a collective. What NCCL would not notice, or answer with a crash, ends the process. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_RANKS = 8, ROOM = 1 << 20, MOST_GROUPED = 64 };
enum { INVALID_ARGUMENT = 4 };
enum { UINT8 = 1, INT32 = 2, INT64 = 4, FLOAT32 = 7, FLOAT64 = 8 };
enum { SUM = 0, MAX = 2, MIN = 3 };

typedef struct { char path[128]; } UniqueId;
typedef struct { volatile int joined, arrived, round; char slots[MOST_RANKS][ROOM]; } Shared;
typedef struct { Shared *shared; int ranks, rank; } Comm;
typedef struct { Comm *comm; char *at; size_t bytes; int other, sends; } Piece;

static __thread int depth, count;
static __thread Piece pieces[MOST_GROUPED];

static void die(const char *why, ...) {
    va_list rest;
    va_start(rest, why);
    fprintf(stderr, "the stub of NCCL: ");
    vfprintf(stderr, why, rest);
    fprintf(stderr, "\n");
    va_end(rest);
    abort();
}

/* Arrays lie on the device: the stub of the driver knows its blocks. */
static void check(void *at, size_t bytes) {
    static int64_t (*block)(void *, char **);
    if (!block) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        block = driver ? dlsym(driver, "stub_block") : NULL;
        if (!block) die("the driver is not the stub");
    }
    char *start;
    int64_t size = block(at, &start);
    if (bytes && (!size || (char *)at + bytes > start + size)) die("%zu bytes at %p are not on the device", bytes, at);
    if (bytes > ROOM) die("%zu bytes are more than the stub sends", bytes);
}

static void meet(Comm *c) {
    int round = c->shared->round;
    if (__sync_add_and_fetch(&c->shared->arrived, 1) == c->ranks) {
        c->shared->arrived = 0;
        __sync_add_and_fetch(&c->shared->round, 1);
    } else
        while (c->shared->round == round) sched_yield();
    __sync_synchronize();
}

static size_t width(int type) {
    switch (type) {
    case UINT8: return 1;
    case INT32: case FLOAT32: return 4;
    case INT64: case FLOAT64: return 8;
    default: die("the datatype %d is sent", type);
    }
    return 0;
}

#define COMBINE(T) for (size_t k = 0; k < n; k++) { T a = ((T *)to)[k], b = ((T *)from)[k]; \
    ((T *)to)[k] = op == SUM ? a + b : op == MAX ? (a > b ? a : b) : (a < b ? a : b); }
static void combine(void *to, void *from, size_t n, int type, int op) {
    if (op != SUM && op != MAX && op != MIN) die("the operation %d", op);
    switch (type) {
    case INT32: COMBINE(int32_t) break;
    case INT64: COMBINE(int64_t) break;
    case FLOAT32: COMBINE(float) break;
    case FLOAT64: COMBINE(double) break;
    default: die("the datatype %d is added", type);
    }
}

const char *ncclGetErrorString(int status) { return status == INVALID_ARGUMENT ? "invalid argument" : "no error"; }

int ncclGetUniqueId(UniqueId *id) {
    memset(id, 0, sizeof *id);
    const char *folder = getenv("TMPDIR");
    snprintf(id->path, sizeof id->path, "%s/stub-nccl-XXXXXX", folder ? folder : "/tmp");
    int file = mkstemp(id->path);
    if (file < 0 || ftruncate(file, sizeof(Shared))) die("no file for the ranks: %s", id->path);
    close(file);
    return 0;
}
int ncclCommInitRank(Comm **made, int ranks, UniqueId id, int rank) {
    if (ranks < 1 || ranks > MOST_RANKS || rank < 0 || rank >= ranks) return INVALID_ARGUMENT;
    int file = open(id.path, O_RDWR);
    if (file < 0) return INVALID_ARGUMENT;
    Comm *c = *made = malloc(sizeof *c);
    c->ranks = ranks, c->rank = rank;
    c->shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    __sync_add_and_fetch(&c->shared->joined, 1);
    while (c->shared->joined < ranks) sched_yield();
    meet(c);
    if (!rank) unlink(id.path);
    return 0;
}
int ncclCommAbort(Comm *c) { munmap(c->shared, sizeof(Shared)); free(c); return 0; }

int ncclAllReduce(void *source, void *target, size_t n, int type, int op, Comm *c, void *stream) {
    size_t bytes = n * width(type);
    check(source, bytes), check(target, bytes);
    memcpy(c->shared->slots[c->rank], source, bytes);
    meet(c);
    memcpy(target, c->shared->slots[0], bytes);
    for (int k = 1; k < c->ranks; k++) combine(target, c->shared->slots[k], n, type, op);
    meet(c);
    return 0;
}
int ncclReduceScatter(void *source, void *target, size_t n, int type, int op, Comm *c, void *stream) {
    size_t bytes = n * width(type);
    check(source, bytes * c->ranks), check(target, bytes);
    memcpy(c->shared->slots[c->rank], source, bytes * c->ranks);
    meet(c);
    memcpy(target, c->shared->slots[0] + bytes * c->rank, bytes);
    for (int k = 1; k < c->ranks; k++) combine(target, c->shared->slots[k] + bytes * c->rank, n, type, op);
    meet(c);
    return 0;
}
int ncclAllGather(void *source, char *target, size_t n, int type, Comm *c, void *stream) {
    size_t bytes = n * width(type);
    check(source, bytes), check(target, bytes * c->ranks);
    memcpy(c->shared->slots[c->rank], source, bytes);
    meet(c);
    for (int k = 0; k < c->ranks; k++) memcpy(target + k * bytes, c->shared->slots[k], bytes);
    meet(c);
    return 0;
}
int ncclBroadcast(void *source, void *target, size_t n, int type, int root, Comm *c, void *stream) {
    size_t bytes = n * width(type);
    if (root < 0 || root >= c->ranks) return INVALID_ARGUMENT;
    check(source, bytes), check(target, bytes);
    if (c->rank == root) memcpy(c->shared->slots[root], source, bytes);
    meet(c);
    memcpy(target, c->shared->slots[root], bytes);
    meet(c);
    return 0;
}

/* What is sent and received in a group: all ranks of a communicator have such a group, and it begins at its end. */
static int note(void *at, size_t n, int type, int other, int sends, Comm *c) {
    if (!depth) die("something is sent outside of a group");
    if (other < 0 || other >= c->ranks) return INVALID_ARGUMENT;
    check(at, n * width(type));
    pieces[count++] = (Piece){c, at, n * width(type), other, sends};
    return 0;
}
int ncclSend(void *at, size_t n, int type, int other, Comm *c, void *stream) { return note(at, n, type, other, 1, c); }
int ncclRecv(void *at, size_t n, int type, int other, Comm *c, void *stream) { return note(at, n, type, other, 0, c); }
int ncclGroupStart(void) { if (depth++) die("a group in a group"); count = 0; return 0; }
int ncclGroupEnd(void) {
    if (depth-- != 1) die("a group ends that has not begun");
    if (!count) return 0;
    Comm *c = pieces[0].comm;
    size_t room = ROOM / MOST_RANKS;
    for (int k = 0; k < count; k++)
        if (pieces[k].sends) memcpy(c->shared->slots[c->rank] + pieces[k].other * room, pieces[k].at, pieces[k].bytes);
    meet(c);
    for (int k = 0; k < count; k++)
        if (!pieces[k].sends) memcpy(pieces[k].at, c->shared->slots[pieces[k].other] + c->rank * room, pieces[k].bytes);
    meet(c);
    return 0;
}
