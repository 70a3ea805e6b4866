/* What libpipewright_cuda.so offers of NCCL, as a C table, so that the command is built and started
 * without NCCL. The module does not link NCCL either: begin() opens libnccl.so.2 where the loader
 * finds it, or where it was when the module was built.
 *
 * Functions that return int give NCCL's own result: 0 done, 7 in progress (communicators do not
 * block: ask state() until it is something else), else an error that text() words. A stream is a
 * cudaStream_t, memory the GPU's. One thread a communicator at a time, and one thread a GPU. No
 * buffer is registered. */
#ifndef PIPEWRIGHT_EXEC_NCCL_MODULE_API_H
#define PIPEWRIGHT_EXEC_NCCL_MODULE_API_H

#include <stddef.h>

#define PIPEWRIGHT_NCCL_ABI 1
#define PIPEWRIGHT_NCCL_ENTRY "pipewright_nccl_entry"
#define PIPEWRIGHT_NCCL_ID_BYTES 128

#ifdef __cplusplus
extern "C" {
#endif

enum { PIPEWRIGHT_NCCL_DONE = 0, PIPEWRIGHT_NCCL_IN_PROGRESS = 7 };

/* What a message or a part consists of. */
enum {
  PIPEWRIGHT_NCCL_BYTES = 0,
  PIPEWRIGHT_NCCL_FLOAT32 = 1,
  PIPEWRIGHT_NCCL_FLOAT64 = 2,
  PIPEWRIGHT_NCCL_BF16 = 3
};

typedef struct pipewright_nccl {
  int abi; /* PIPEWRIGHT_NCCL_ABI */

  /* 0, or not 0 with a sentence in `why`: there is no libnccl.so.2, or one that is too old. Once a
   * process; a second call does nothing. */
  int (*begin)(char* why, size_t why_size);
  /* 22809 is 2.28.9: of the library that runs, and of the header that the module was built with. */
  int (*version)(void);
  int header_version;
  const char* (*text)(int result);
  /* The library's last words on the calling thread's failure; may be empty. */
  const char* (*last_words)(void);

  int (*unique_id)(void* id); /* PIPEWRIGHT_NCCL_ID_BYTES */
  /* Joins a communicator on the GPU that the thread has entered: blocking 0, splitShare 0,
   * maxCTAs most_ctas, commName name. */
  int (*join)(void** communicator, int members, const void* id, int index, int most_ctas,
              const char* name);
  /* The communicator's asynchronous state. */
  int (*state)(void* communicator);
  /* Ends everything under way on it and frees it; from any thread. */
  int (*abort)(void* communicator);
  /* In good order: flushes, then frees. */
  int (*finalize)(void* communicator);
  int (*destroy)(void* communicator);

  int (*group_start)(void);
  int (*group_end)(void);
  int (*send)(const void* data, size_t count, int kind, int peer, void* communicator, void* stream);
  int (*receive)(void* data, size_t count, int kind, int peer, void* communicator, void* stream);
  /* Sums. `to` may be `from`. */
  int (*all_reduce)(const void* from, void* to, size_t count, int kind, void* communicator,
                    void* stream);
  /* count: of the part that each member is left with. */
  int (*reduce_scatter)(const void* from, void* to, size_t count, int kind, void* communicator,
                        void* stream);
  /* count: of the part that each member brings. */
  int (*all_gather)(const void* from, void* to, size_t count, int kind, void* communicator,
                    void* stream);
} pipewright_nccl;

typedef const pipewright_nccl* (*pipewright_nccl_entry_function)(void);

#ifdef __cplusplus
}
#endif

#endif
