// The job that a test runs in (mpi_main.cpp).
#pragma once

#include "exec/transports/process/link.hpp"

namespace pipewright::tests {

exec::mpi::Link& job_link();

}  // namespace pipewright::tests
