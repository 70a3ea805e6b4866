// libpipewright_mpi.so: the only file that knows MPI. See exec/transports/process/mpi/module_api.h.
#include <mpi.h>

#include <cstdio>
#include <memory>

#include "exec/transports/process/mpi/module_api.h"

namespace {

constexpr int kAnybody = -1;

/// A communicator of our own, so that nobody else's messages can be taken for ours. MPI's state is
/// the process's, hence a global.
MPI_Comm job = MPI_COMM_NULL;

int begin(char* why, std::size_t why_size) {
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
    std::snprintf(why, why_size, "MPI_Init_thread failed");
    return 1;
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    std::snprintf(why, why_size, "this MPI does not let several threads call it in turn");
    return 1;
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &job);
  MPI_Comm_set_errhandler(job, MPI_ERRORS_RETURN);
  return 0;
}

int process() {
  int rank = 0;
  MPI_Comm_rank(job, &rank);
  return rank;
}

int processes() {
  int size = 0;
  MPI_Comm_size(job, &size);
  return size;
}

const char* library() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  if (text[0] == 0) MPI_Get_library_version(text, &length);
  return text;
}

void* send(const void* data, std::size_t bytes, int to, int channel) {
  auto request = std::make_unique<MPI_Request>();
  const int failed =
      MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, channel, job, request.get());
  return failed == MPI_SUCCESS ? request.release() : nullptr;
}

void* receive(void* data, std::size_t bytes, int from, int channel) {
  auto request = std::make_unique<MPI_Request>();
  const int source = from == kAnybody ? MPI_ANY_SOURCE : from;
  const int failed =
      MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, source, channel, job, request.get());
  return failed == MPI_SUCCESS ? request.release() : nullptr;
}

int test(void* handle, int* from) {
  auto* request = static_cast<MPI_Request*>(handle);
  int done = 0;
  MPI_Status status;
  const int failed = MPI_Test(request, &done, &status);
  if (failed != MPI_SUCCESS) {
    delete request;
    return -1;
  }
  if (done == 0) return 0;
  *from = status.MPI_SOURCE;
  delete request;
  return 1;
}

void cancel(void* handle) {
  auto* request = static_cast<MPI_Request*>(handle);
  MPI_Cancel(request);
  MPI_Request_free(request);
  delete request;
}

void end() {
  MPI_Comm_free(&job);
  MPI_Finalize();
}

constexpr pipewright_mpi kTable = {
    PIPEWRIGHT_MPI_ABI, begin, process, processes, library, send, receive, test, cancel, end};

}  // namespace

extern "C" __attribute__((visibility("default"))) const pipewright_mpi* pipewright_mpi_entry() {
  return &kTable;
}
