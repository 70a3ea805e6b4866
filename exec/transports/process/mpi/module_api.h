/* What libpipewright_mpi.so offers: the few calls of MPI that exec/transports/process/mpi/wire.cpp needs, as a C
 * table, so that the command is built and started without MPI. Every function is called under the
 * caller's lock (MPI_THREAD_SERIALIZED); none waits, but for begin() and end(). A request is freed
 * by the call that reports it done, and by cancel(). */
#ifndef PIPEWRIGHT_EXEC_MPI_MODULE_API_H
#define PIPEWRIGHT_EXEC_MPI_MODULE_API_H

#include <stddef.h>

#define PIPEWRIGHT_MPI_ABI 1
#define PIPEWRIGHT_MPI_ENTRY "pipewright_mpi_entry"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pipewright_mpi {
  int abi; /* PIPEWRIGHT_MPI_ABI */
  /* Joins the job that mpirun has started. 0, or not 0 with a sentence in `why`. */
  int (*begin)(char* why, size_t why_size);
  int (*process)(void);
  int (*processes)(void);
  /* "Open MPI v4.1.4, ..." */
  const char* (*library)(void);
  /* NULL: failed. At most 2^30 bytes. */
  void* (*send)(const void* data, size_t bytes, int to, int channel);
  /* from -1: anybody. */
  void* (*receive)(void* data, size_t bytes, int from, int channel);
  /* 1: done, *from is set for a receive; 0: not yet; -1: failed. */
  int (*test)(void* request, int* from);
  void (*cancel)(void* request);
  void (*end)(void);
} pipewright_mpi;

typedef const pipewright_mpi* (*pipewright_mpi_entry_function)(void);

#ifdef __cplusplus
}
#endif

#endif
