/* A driver without a GPU: the part of libcuda.so.1 that dlc calls, on memory of the host.

   It is there to prove every call through cuda-python: the arguments arrive as NVIDIA's headers declare
   them, in an order that the driver allows. What a driver would not notice, or answer with a crash, ends
   the process with a message. Streams run at once; a kernel is a call of `stub_on_kernel`, or nothing.
   As on a GPU, an error of a kernel comes with the next call and stays. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_CONTEXT = 201, INVALID_PTX = 218,
       NOT_FOUND = 500, NOT_SUPPORTED = 801, NOT_READY = 802, NOT_CAPTURED = 900, CAPTURE_VOID = 901 };
enum { DYNAMIC_SHARED = 8, MOST_SHARED = 227 << 10 };
enum { COPY = 1, SET = 2, RELAXED = 2 };
enum { CONDITIONAL = 13, BUFFER = 5, BUFFER_BYTES = 6, MOST_NODES = 4096, MOST_WORDS = 128 };

/* What a test sets before the first call of the driver, or between two. */
int64_t stub_devices = 1, stub_version = 13000, stub_capability = 90, stub_has_pools = 1;
int64_t stub_bytes = (int64_t)1 << 34, stub_refuses_start = 0, stub_refuses_ptx = 0, stub_refuses_conditions = 0;
int64_t volatile stub_hangs = 0;
int (*stub_on_kernel)(const char *name, int64_t blocks, const int64_t *words, int64_t count);
/* What a test reads. */
int64_t stub_used = 0, stub_calls = 0, stub_launches = 0;

typedef struct Block { struct Block *next; char *at; size_t size; int is_device; } Block;
typedef struct { char *image; } Module;
typedef struct { char name[256]; int words, most_threads, asks_for_shared; unsigned most_shared; } Function;
typedef struct { Function *f; unsigned grid[3], block[3], shared; void **words; void **extra; void *kernel;
                 void *context; } KernelParams;
typedef struct Graph Graph;
typedef struct { Graph *owner; unsigned value, initial, flags; } Condition;
typedef struct Node { Function *f; int64_t words[MOST_WORDS]; int64_t blocks; Condition *condition;
                      int again; Graph *body; int64_t *event; struct Node *origin;
                      int kind; char *to, *from, byte; size_t size; } Node;
struct Graph { Node **nodes; int count; Graph *parent; int is_executable, is_conditional; };
typedef struct { uint64_t handle; int type; unsigned size; Graph **bodies; void *context; } Conditional;
typedef struct { int type, reserved[3]; Conditional conditional; } NodeParams;

/* The clock of the device in microseconds: kernels and events take so long, whatever the machine does. */
enum { KERNEL = 1000 };
static int64_t now;
static Block *blocks;
static int is_initialized, lost, is_capture_void;
static __thread int depth, capture_mode;
static void *captured_stream;
static Graph *captured;
static Node *add(Graph *g, Node **after, size_t count);
static Graph *new_graph(Graph *parent);
static char context, pool;
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static void die(const char *why, ...) {
    va_list rest;
    va_start(rest, why);
    fprintf(stderr, "the stub of the driver: ");
    vfprintf(stderr, why, rest);
    fprintf(stderr, "\n");
    va_end(rest);
    abort();
}

/* A function that needs a context: `BEGIN ... END` holds the lock and counts the call. */
#define BEGIN { pthread_mutex_lock(&mutex); stub_calls++; int status = !is_initialized ? NOT_INITIALIZED : depth ? lost : INVALID_CONTEXT; \
    if (!status) do
#define BEGIN_FREE { pthread_mutex_lock(&mutex); stub_calls++; int status = 0; do
#define END while (0); pthread_mutex_unlock(&mutex); return status; }
#define FAIL(code) { status = (code); break; }

/* Whoever waits for the device waits as long as its kernels hang; others go on. */
#define AWAIT while (stub_hangs) usleep(100);

/* What voids a capture: waiting, and memory that is not the stream's, unless the thread has said that it may;
   whatever the thread has said, waiting for the device. */
#define VOID { is_capture_void = 1; FAIL(NOT_CAPTURED) }
#define NO_CAPTURE if (captured_stream && capture_mode != RELAXED) VOID
#define IS_CAPTURED(stream) (captured_stream && (stream) == captured_stream)

/* Start ------------------------------------------------------------------------------------------- */

int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    Dl_info here;
    dladdr(&context, &here);
    void *self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    /* Before 12.3 this function had other parameters. */
    int is_other = !strcmp(name, "cuGraphAddNode") && version < 12030;
    *found = is_other ? NULL : dlsym(self, name);
    if (status) *status = *found ? 0 : 1;
    return *found ? 0 : NOT_FOUND;
}
static void in_child(void) { is_initialized = 0; }
int cuInit(unsigned flags) BEGIN_FREE {
    if (!is_initialized) pthread_atfork(NULL, NULL, in_child);
    if (stub_refuses_start) FAIL(NOT_READY)
    is_initialized = 1;
    if (!stub_devices) FAIL(NO_DEVICE)
} END
int cuDriverGetVersion(int *version) BEGIN_FREE { *version = stub_version; } END
int cuDeviceGetCount(int *count) BEGIN_FREE { *count = stub_devices; } END
int cuDeviceGet(int *device, int number) BEGIN_FREE { if (number >= stub_devices) FAIL(INVALID_VALUE) *device = number; } END
int cuDevicePrimaryCtxRetain(void **found, int device) BEGIN_FREE { *found = &context; } END
int cuDeviceGetName(char *name, int size, int device) BEGIN_FREE { snprintf(name, size, "stub"); } END
int cuDeviceGetAttribute(int *value, int which, int device) BEGIN_FREE {
    switch (which) {
    case 75: *value = stub_capability / 10; break;
    case 76: *value = stub_capability % 10; break;
    case 115: *value = stub_has_pools; break;
    default: die("attribute %d is asked for", which);
    }
} END
int cuCtxPushCurrent(void *which) BEGIN_FREE { if (!is_initialized) FAIL(NOT_INITIALIZED) if (which != &context) FAIL(INVALID_CONTEXT) depth++; } END
int cuCtxPopCurrent(void **which) BEGIN_FREE { if (!depth) FAIL(INVALID_CONTEXT) depth--; *which = &context; } END
int cuCtxSynchronize(void) { AWAIT BEGIN { if (captured_stream) VOID } END }
int cuGetErrorString(int error, const char **text) BEGIN_FREE {
    static __thread char words[64];
    snprintf(words, sizeof words, error == OUT_OF_MEMORY ? "out of memory" : "error %d of the stub", error);
    *text = words;
} END

/* Memory ------------------------------------------------------------------------------------------ */

static Block *block_of(void *at, size_t size) {
    for (Block *b = blocks; b; b = b->next)
        if (b->at <= (char *)at && (char *)at + size <= b->at + b->size) return b;
    return NULL;
}
/* The block around an address, for the kernels of a test: its size, and where it begins. */
int64_t stub_block(void *at, char **start) {
    Block *b = block_of(at, 1);
    *start = b ? b->at : NULL;
    return b ? (int64_t)b->size : 0;
}
static int allocate(void **at, size_t size, int is_device) {
    if (!size) return INVALID_VALUE;
    if (is_device && stub_used + (int64_t)size > stub_bytes) return OUT_OF_MEMORY;
    Block *b = malloc(sizeof *b);
    if (posix_memalign((void **)&b->at, 4096, size)) return OUT_OF_MEMORY;
    memset(b->at, 0xA5, size);
    b->size = size, b->is_device = is_device, b->next = blocks, blocks = b;
    stub_used += is_device ? (int64_t)size : 0;
    *at = b->at;
    return 0;
}
static int release(void *at, int is_device) {
    for (Block **p = &blocks; *p; p = &(*p)->next)
        if ((*p)->at == at && (*p)->is_device == is_device) {
            Block *b = *p;
            *p = b->next;
            stub_used -= is_device ? (int64_t)b->size : 0;
            free(b->at), free(b);
            return 0;
        }
    die("%p is freed, and no memory begins there", at);
    return 0;
}
static int move(void *target, int to_device, void *source, int from_device, size_t size) {
    Block *to = block_of(target, size), *from = block_of(source, size);
    if (!to || to->is_device != to_device) die("%zu bytes are copied to %p, which is no such memory", size, target);
    if (!from || from->is_device != from_device) die("%zu bytes are copied from %p, which is no such memory", size, source);
    memmove(target, source, size);
    return 0;
}
int cuMemAlloc(void **at, size_t size) BEGIN { NO_CAPTURE status = allocate(at, size, 1); } END
int cuMemAllocAsync(void **at, size_t size, void *stream) BEGIN { NO_CAPTURE status = allocate(at, size, 1); } END
int cuMemFree(void *at) BEGIN { NO_CAPTURE status = release(at, 1); } END
int cuMemFreeAsync(void *at, void *stream) BEGIN { NO_CAPTURE status = release(at, 1); } END
int cuMemHostAlloc(void **at, size_t size, unsigned flags) BEGIN { NO_CAPTURE status = allocate(at, size, 0); } END
int cuMemFreeHost(void *at) BEGIN { NO_CAPTURE status = release(at, 0); } END
int cuDeviceGetDefaultMemPool(void **found, int device) BEGIN_FREE { *found = &pool; } END
int cuMemPoolSetAttribute(void *which, int attribute, void *value) BEGIN_FREE {
    if (which != &pool || attribute != 4 || *(uint64_t *)value != UINT64_MAX) die("the pool is set otherwise");
} END
int cuPointerGetAttribute(void *value, int attribute, void *at) BEGIN {
    Block *b = block_of(at, 1);
    if (!b || attribute != 2) FAIL(INVALID_VALUE)
    *(unsigned *)value = b->is_device ? 2 : 1;
} END
int cuMemcpyHtoDAsync(void *to, void *from, size_t size, void *stream) BEGIN { status = move(to, 1, from, 0, size); } END
static void record(int kind, void *to, void *from, char byte, size_t size) {
    Node *n = add(captured, NULL, 0);
    n->kind = kind, n->to = to, n->from = from, n->byte = byte, n->size = size;
}
int cuMemcpyDtoHAsync(void *to, void *from, size_t size, void *stream) BEGIN {
    if (IS_CAPTURED(stream)) { record(COPY, to, from, 0, size); break; }
    status = move(to, 0, from, 1, size); } END
int cuMemcpyDtoDAsync(void *to, void *from, size_t size, void *stream) BEGIN { status = move(to, 1, from, 1, size); } END
int cuMemsetD8Async(void *at, unsigned char byte, size_t size, void *stream) BEGIN {
    Block *b = block_of(at, size);
    if (!b || !b->is_device) die("%zu bytes at %p are set, which is no memory of the device", size, at);
    if (IS_CAPTURED(stream)) { record(SET, at, NULL, byte, size); break; }
    memset(at, byte, size);
} END

/* Streams and events ------------------------------------------------------------------------------ */

int cuStreamCreate(void **stream, unsigned flags) BEGIN { *stream = malloc(1); } END
int cuStreamDestroy(void *stream) BEGIN { NO_CAPTURE free(stream); } END
int cuStreamSynchronize(void *stream) { AWAIT BEGIN { NO_CAPTURE if (IS_CAPTURED(stream)) VOID } END }
int cuStreamIsCapturing(void *stream, int *found) BEGIN { *found = IS_CAPTURED(stream); } END
int cuThreadExchangeStreamCaptureMode(int *mode) BEGIN_FREE { int old = capture_mode; capture_mode = *mode, *mode = old; } END
int cuStreamBeginCapture(void *stream, int mode) BEGIN { captured_stream = stream, captured = new_graph(NULL), is_capture_void = 0; } END
int cuStreamEndCapture(void *stream, Graph **graph) BEGIN {
    if (!IS_CAPTURED(stream)) die("a capture ends that has not begun");
    captured_stream = NULL;
    if (is_capture_void) FAIL(CAPTURE_VOID)
    *graph = captured;
} END
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) BEGIN {} END
int cuEventCreate(void **event, unsigned flags) BEGIN { *event = calloc(1, sizeof(int64_t)); } END
int cuEventDestroy(void *event) BEGIN { NO_CAPTURE free(event); } END
int cuEventRecord(int64_t *event, void *stream) BEGIN { *event = ++now; } END
int cuEventSynchronize(void *event) { AWAIT BEGIN {} END }
int cuEventElapsedTime(float *ms, int64_t *begin, int64_t *end) BEGIN {
    if (!*begin || !*end) die("an event was not recorded");
    *ms = (*end - *begin) / 1e3;
} END

/* Kernels ----------------------------------------------------------------------------------------- */

int cuModuleLoadDataEx(Module **module, const char *image, unsigned count, int *options, void **values) BEGIN {
    const char *why = strstr(image, ".version ") != image && !strstr(image, "\n.version ") ? "no PTX" : "told to";
    if (strcmp(why, "no PTX") && !stub_refuses_ptx) {
        *module = malloc(sizeof **module);
        (*module)->image = strdup(image);
        break;
    }
    size_t room = 0;
    for (unsigned k = 0; k < count; k++)
        if (options[k] == BUFFER_BYTES) room = (size_t)values[k];
    for (unsigned k = 0; k < count; k++)
        if (options[k] == BUFFER) snprintf(values[k], room, "ptxas error: the stub refuses it: %s", why);
    FAIL(INVALID_PTX)
} END
int cuModuleUnload(Module *module) BEGIN { NO_CAPTURE free(module->image), free(module); } END
int cuModuleGetFunction(Function **found, Module *module, const char *name) BEGIN {
    char wanted[300];
    snprintf(wanted, sizeof wanted, ".entry %s(", name);
    char *at = strstr(module->image, wanted);
    snprintf(wanted, sizeof wanted, ".entry %s (", name);
    if (!at) at = strstr(module->image, wanted);
    if (!at) FAIL(NOT_FOUND)
    Function *f = calloc(1, sizeof *f);
    char *end = strchr(strchr(at, '(') + 1, ')');
    for (char *p = at; (p = strstr(p, ".param")) && p < end; p++) f->words++;
    char *most = strstr(end, "ntid");
    f->most_threads = most ? atoi(most + 4) : 1024;
    /* What a launch asks for is an array without a length, `NAME_shared`, in the PTX of LLVM. */
    snprintf(wanted, sizeof wanted, " %s_shared[", name);
    f->asks_for_shared = strstr(module->image, wanted) != NULL;
    f->most_shared = 48 << 10;
    snprintf(f->name, sizeof f->name, "%s", name);
    *found = f;
} END
int cuFuncSetAttribute(Function *f, int which, int value) BEGIN {
    if (which != DYNAMIC_SHARED) die("attribute %d of %s is set", which, f->name);
    if (value < 0 || value > MOST_SHARED) FAIL(INVALID_VALUE)
    f->most_shared = value;
} END
static int run(Function *f, int64_t count, int64_t *words) {
    stub_launches++;
    now += KERNEL;
    if (!lost && stub_on_kernel) lost = stub_on_kernel(f->name, count, words, f->words);
    return 0;
}
static void take(Node *n, KernelParams *given) {
    Function *f = given->f;
    if (given->grid[1] != 1 || given->grid[2] != 1 || given->block[1] != 1 || given->block[2] != 1 || given->extra || given->kernel
        || !given->grid[0] || !given->block[0] || (int)given->block[0] > f->most_threads)
        die("%s is launched with other blocks than it is compiled for", f->name);
    if (!given->shared != !f->asks_for_shared || given->shared > f->most_shared)
        die("%s is launched with %u bytes of shared memory", f->name, given->shared);
    if (f->words > MOST_WORDS) die("%s has more words than the stub keeps", f->name);
    n->f = f, n->blocks = given->grid[0];
    for (int k = 0; k < f->words; k++) n->words[k] = *(int64_t *)given->words[k];
}
int cuLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **words, void **extra) BEGIN {
    Node n;
    KernelParams given = {f, {gx, gy, gz}, {bx, by, bz}, shared, words, extra, NULL, NULL};
    if (IS_CAPTURED(stream)) { take(add(captured, NULL, 0), &given); break; }
    take(&n, &given);
    status = run(f, n.blocks, n.words);
} END

/* Graphs ------------------------------------------------------------------------------------------ */

static Graph *new_graph(Graph *parent) {
    Graph *g = calloc(1, sizeof *g);
    g->nodes = calloc(MOST_NODES, sizeof *g->nodes), g->parent = parent;
    return g;
}
static Graph *whole(Graph *g) { return g->parent ? whole(g->parent) : g; }
static Node *add(Graph *g, Node **after, size_t count) {
    for (size_t k = 0; k < count; k++) {
        int is_here = 0;
        for (int j = 0; j < g->count; j++) is_here |= g->nodes[j] == after[k];
        for (size_t j = 0; j < k; j++) is_here &= after[j] != after[k];
        if (!is_here) die("an edge begins outside of its graph, or is there twice");
    }
    if (g->is_executable || g->count == MOST_NODES) die("a node is added to a graph that is complete, or too large");
    return g->nodes[g->count++] = calloc(1, sizeof(Node));
}
static void destroy(Graph *g) {
    for (int k = 0; k < g->count; k++) {
        if (g->nodes[k]->body) destroy(g->nodes[k]->body);
        free(g->nodes[k]);
    }
    free(g->nodes), free(g);
}
static Graph *copy_of(Graph *g) {
    Graph *made = new_graph(NULL);
    made->count = g->count, made->is_executable = 1;
    for (int k = 0; k < g->count; k++) {
        made->nodes[k] = memcpy(malloc(sizeof(Node)), g->nodes[k], sizeof(Node));
        made->nodes[k]->origin = g->nodes[k];
        if (g->nodes[k]->body) made->nodes[k]->body = copy_of(g->nodes[k]->body);
    }
    return made;
}
static Node *find(Graph *g, Node *origin) {
    Node *found = NULL;
    for (int k = 0; k < g->count && !found; k++)
        found = g->nodes[k]->origin == origin ? g->nodes[k] : g->nodes[k]->body ? find(g->nodes[k]->body, origin) : NULL;
    return found;
}
static void start(Graph *g) {
    for (int k = 0; k < g->count; k++)
        if (g->nodes[k]->body) {
            Condition *c = g->nodes[k]->condition;
            if (c->flags & 1) c->value = c->initial;
            start(g->nodes[k]->body);
        }
}
static void run_graph(Graph *g) {
    for (int k = 0; k < g->count && !lost; k++) {
        Node *n = g->nodes[k];
        if (n->f) run(n->f, n->blocks, n->words);
        if (n->event) *n->event = ++now;
        if (n->kind == COPY) move(n->to, 0, n->from, 1, n->size);
        if (n->kind == SET) memset(n->to, n->byte, n->size);
        for (int more = 1; n->body && more && n->condition->value && !lost; more = n->again) run_graph(n->body);
    }
}
/* What the device function of the driver does: a kernel of a test calls it. */
void stub_set_condition(uint64_t condition, unsigned value) { ((Condition *)condition)->value = value; }

int cuGraphCreate(Graph **graph, unsigned flags) BEGIN { *graph = new_graph(NULL); } END
int cuGraphDestroy(Graph *graph) BEGIN_FREE { if (graph->is_executable || graph->parent) die("a graph is destroyed as another one"); destroy(graph); } END
int cuGraphExecDestroy(Graph *graph) BEGIN_FREE { NO_CAPTURE if (!graph->is_executable) die("a graph is destroyed as an executable one"); destroy(graph); } END
int cuGraphAddKernelNode(Node **node, Graph *graph, Node **after, size_t count, KernelParams *given) BEGIN {
    take(*node = add(graph, after, count), given);
} END
int cuGraphAddEmptyNode(Node **node, Graph *graph, Node **after, size_t count) BEGIN { *node = add(graph, after, count); } END
int cuGraphAddEventRecordNode(Node **node, Graph *graph, Node **after, size_t count, int64_t *event) BEGIN {
    if (graph->parent) die("an event is recorded in a body");
    *node = add(graph, after, count), (*node)->event = event;
} END
int cuGraphConditionalHandleCreate(uint64_t *handle, Graph *graph, void *which, unsigned initial, unsigned flags) BEGIN {
    if (stub_refuses_conditions) FAIL(NOT_SUPPORTED)
    if (which != &context) FAIL(INVALID_VALUE)
    Condition *c = calloc(1, sizeof *c);
    c->owner = graph, c->initial = initial, c->flags = flags;
    *handle = (uint64_t)c;
} END
int cuGraphAddNode(Node **node, Graph *graph, Node **after, const char *edges, size_t count, NodeParams *given) BEGIN {
    Conditional *c = &given->conditional;
    Condition *condition = (Condition *)c->handle;
    if (given->type != CONDITIONAL || c->size != 1 || c->context != &context || c->type < 0 || c->type > 1)
        die("a conditional node is told otherwise");
    for (size_t k = 0; k < 8 * count; k++) if (edges[k]) die("the data of an edge is not 0");
    if (condition->owner != graph) die("a condition is of another graph, or has a node");
    condition->owner = NULL;
    *node = add(graph, after, count);
    (*node)->condition = condition, (*node)->again = c->type;
    c->bodies = malloc(sizeof *c->bodies);
    (*node)->body = *c->bodies = new_graph(graph);
    whole(graph)->is_conditional = 1;
} END
int cuGraphInstantiateWithFlags(Graph **made, Graph *graph, uint64_t flags) BEGIN {
    if (graph->parent) die("a body is instantiated");
    *made = copy_of(graph);
} END
int cuGraphLaunch(Graph *graph, void *stream) BEGIN {
    if (!graph->is_executable) die("a graph is launched that is not instantiated");
    if (IS_CAPTURED(stream)) FAIL(NOT_CAPTURED)
    start(graph);
    run_graph(graph);
} END
int cuGraphExecKernelNodeSetParams(Graph *graph, Node *node, KernelParams *given) BEGIN {
    Node *found = graph->is_executable ? find(graph, node) : NULL;
    if (!found || !found->f || found->f != given->f) die("a node is changed that the graph does not have");
    take(found, given);
} END
