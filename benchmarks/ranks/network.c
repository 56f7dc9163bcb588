/* MPI over a network that sends beside the processors, by a clock of its own.

   The clock is the processor time of the calling thread outside of MPI, so other work on the machine does not count, nor
   does what MPI itself copies between processes. A collective is over when the network has sent it: one after the other,
   each in so many nanoseconds a message and picoseconds a byte, by the algorithms that `dlc scale` assumes
   (dlc/target/network.py). What is left of that time when a rank needs the result, it waits: the clock goes on to the end.
   A collective that a rank waits for from the beginning is waited for as a whole. */

#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 4096 };

int64_t network_message = 0, network_byte = 0;   /* nanoseconds and picoseconds */
int64_t network_sending = 0, network_waited = 0; /* nanoseconds, summed */

static int64_t shift, is_free_at;
static struct { MPI_Request request; int64_t until; } under_way[MOST];
static int count;

static int64_t processor_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

/* The clock, in nanoseconds. */
int64_t network_now(void) { return processor_time() + shift; }

/* The result of a call of MPI, while which the clock stands still. */
#define OUTSIDE(call) ({ int64_t begun_ = processor_time(); int found_ = call; shift -= processor_time() - begun_; found_; })

/* When a collective that begins now is over, of `rounds` rounds in each of which a part of the array is sent. */
static int64_t end_of(int rounds, int64_t bytes, MPI_Comm comm) {
    int ranks, steps = 0;
    PMPI_Comm_size(comm, &ranks);
    while (1 << steps < ranks) steps++;
    int64_t sent = bytes * (ranks - 1) / ranks, now = network_now();
    int64_t takes = rounds * (steps * network_message + sent * network_byte / 1000);
    network_sending += takes;
    return is_free_at = (is_free_at > now ? is_free_at : now) + takes;
}

/* While it is stopped the clock stands still, as in calls of MPI that Python makes. */
static int64_t stopped_at;
void network_stop(void) { stopped_at = processor_time(); }
void network_go(void) { shift -= processor_time() - stopped_at; }

/* When a message of so many bytes to one rank, sent now, arrives. */
int64_t network_arrival(int64_t bytes) {
    int64_t now = network_now(), takes = bytes * network_byte / 1000;
    network_sending += network_message + takes;
    is_free_at = (is_free_at > now ? is_free_at : now) + takes;
    return is_free_at + network_message;
}

static void wait_until(int64_t until) {
    int64_t left = until - network_now();
    if (left > 0) shift += left, network_waited += left;
}

/* Wait for a message that arrives then. */
void network_await(int64_t until) { wait_until(until); }

static int64_t bytes_of(int n, MPI_Datatype type) {
    int size;
    PMPI_Type_size(type, &size);
    return n * (int64_t)size;
}

static int64_t bytes_of_all(int n, MPI_Datatype type, MPI_Comm comm) {
    int ranks;
    PMPI_Comm_size(comm, &ranks);
    return ranks * bytes_of(n, type);
}

int network_MPI_Allreduce(const void *source, void *target, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    wait_until(end_of(2, bytes_of(n, type), comm));
    return OUTSIDE(PMPI_Allreduce(source, target, n, type, op, comm));
}
int network_MPI_Allgather(const void *source, int n, MPI_Datatype type, void *target, int m, MPI_Datatype other, MPI_Comm comm) {
    wait_until(end_of(1, bytes_of_all(n, type, comm), comm));
    return OUTSIDE(PMPI_Allgather(source, n, type, target, m, other, comm));
}
int network_MPI_Reduce_scatter_block(const void *source, void *target, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    wait_until(end_of(1, bytes_of_all(n, type, comm), comm));
    return OUTSIDE(PMPI_Reduce_scatter_block(source, target, n, type, op, comm));
}
int network_MPI_Iallreduce(const void *source, void *target, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request) {
    int64_t until = end_of(2, bytes_of(n, type), comm);
    int status = OUTSIDE(PMPI_Iallreduce(source, target, n, type, op, comm, request));
    if (count == MOST) abort();
    under_way[count].request = *request, under_way[count++].until = until;
    return status;
}
/* The library gets on, and the request stays. */
int network_MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    int done;
    *flag = 0;
    return OUTSIDE(PMPI_Request_get_status(*request, &done, MPI_STATUS_IGNORE));
}
int network_MPI_Wait(MPI_Request *request, MPI_Status *status) {
    int k = 0;
    while (k < count && under_way[k].request != *request) k++;
    if (k == count) abort();
    wait_until(under_way[k].until);
    under_way[k] = under_way[--count];
    return OUTSIDE(PMPI_Wait(request, status));
}
