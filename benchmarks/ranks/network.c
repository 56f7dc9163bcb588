/* MPI over a network that sends beside the processors: each collective takes a time of its own, and none of theirs.

   A collective is MPI's, and is over when MPI has done it and the network would have sent it: one after the other, each in
   so many nanoseconds a message and picoseconds a byte, by the algorithms that `dlc scale` assumes
   (dlc/target/network.py). What is left of that time when a rank needs the result, it sleeps: all of it where the rank
   waits from the beginning. */

#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 4096 };
static const int64_t SHORT = 200000; /* nanoseconds before the end in which it looks again and again, as sleeping is inexact */

int64_t network_message = 0, network_byte = 0;                /* nanoseconds and picoseconds */
int64_t network_sending = 0, network_waited = 0;              /* nanoseconds, summed */

static int64_t is_free_at;
static struct { MPI_Request request; int64_t until; } under_way[MOST];
static int count;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

/* When a collective that begins now is over, of `rounds` rounds in each of which a part of the array is sent. */
static int64_t end_of(int rounds, int64_t bytes, MPI_Comm comm) {
    int ranks, steps = 0;
    PMPI_Comm_size(comm, &ranks);
    while (1 << steps < ranks) steps++;
    int64_t sent = bytes * (ranks - 1) / ranks, at = now();
    int64_t takes = rounds * (steps * network_message + sent * network_byte / 1000);
    network_sending += takes;
    return is_free_at = (is_free_at > at ? is_free_at : at) + takes;
}

static void sleep_until(int64_t until) {
    int64_t begin = now();
    if (until <= begin) return;
    int64_t left = until - begin - SHORT;
    if (left > 0) nanosleep(&(struct timespec){left / 1000000000, left % 1000000000}, NULL);
    while (now() < until) sched_yield();
    network_waited += until - begin;
}

static int64_t bytes_of(int n, MPI_Datatype type) {
    int size;
    PMPI_Type_size(type, &size);
    return n * (int64_t)size;
}

int network_MPI_Allreduce(const void *source, void *target, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    int status = PMPI_Allreduce(source, target, n, type, op, comm);
    sleep_until(end_of(2, bytes_of(n, type), comm));
    return status;
}
int network_MPI_Allgather(const void *source, int n, MPI_Datatype type, void *target, int m, MPI_Datatype other, MPI_Comm comm) {
    int ranks;
    PMPI_Comm_size(comm, &ranks);
    int status = PMPI_Allgather(source, n, type, target, m, other, comm);
    sleep_until(end_of(1, ranks * bytes_of(n, type), comm));
    return status;
}
int network_MPI_Reduce_scatter_block(const void *source, void *target, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    int ranks;
    PMPI_Comm_size(comm, &ranks);
    int status = PMPI_Reduce_scatter_block(source, target, n, type, op, comm);
    sleep_until(end_of(1, ranks * bytes_of(n, type), comm));
    return status;
}
int network_MPI_Iallreduce(const void *source, void *target, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request) {
    int64_t until = end_of(2, bytes_of(n, type), comm);
    int status = PMPI_Iallreduce(source, target, n, type, op, comm, request);
    if (count == MOST) abort();
    under_way[count].request = *request, under_way[count++].until = until;
    return status;
}
/* The library gets on, and the request stays. */
int network_MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    *flag = 0;
    int done;
    return PMPI_Request_get_status(*request, &done, MPI_STATUS_IGNORE);
}
int network_MPI_Wait(MPI_Request *request, MPI_Status *status) {
    int k = 0;
    while (k < count && under_way[k].request != *request) k++;
    if (k == count) abort();
    int64_t until = under_way[k].until;
    under_way[k] = under_way[--count];
    int done = PMPI_Wait(request, status);
    sleep_until(until);
    return done;
}
