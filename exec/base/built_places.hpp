// Where the build found or put what is loaded at run time: the only source that depends on the
// folder of the build. Empty in a build that is to run elsewhere (PIPEWRIGHT_PORTABLE): on a
// machine that others share, what lies in a folder of that name there need not be ours.
#pragma once

namespace pipewright::exec {

extern const char* const kBuiltBlasLibrary;
extern const char* const kBuiltMpiModule;
extern const char* const kBuiltCudaModule;

}  // namespace pipewright::exec
