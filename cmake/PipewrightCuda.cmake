# PIPEWRIGHT_CUDA=AUTO|ON|OFF. The CUDA and NCCL backends will be modules loaded at run time, in exec/cuda and
# exec/nccl. This version has none, so AUTO and OFF mean the same and ON is refused.

include_guard(GLOBAL)

string(TOUPPER "${PIPEWRIGHT_CUDA}" _pipewright_cuda)
if(_pipewright_cuda MATCHES "^(ON|TRUE|YES|1)$")
  message(FATAL_ERROR "PIPEWRIGHT_CUDA=ON: the CUDA module is not part of this version of Pipewright "
                      "(${PROJECT_VERSION}). Configure with PIPEWRIGHT_CUDA=AUTO or OFF.")
elseif(NOT _pipewright_cuda MATCHES "^(AUTO|OFF|FALSE|NO|0)$")
  message(FATAL_ERROR "PIPEWRIGHT_CUDA=${PIPEWRIGHT_CUDA}: expected AUTO, ON or OFF")
endif()
unset(_pipewright_cuda)
