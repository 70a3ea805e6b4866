// The door of a process of a job (exec/transports/process/tcp/doorkeeper.hpp) as a reader of bytes.
#pragma once

#include <string_view>

namespace pipewright::test {

/// Somebody comes to a door, says the bytes and leaves. An odd first byte, which is not said: he
/// knows the token and proves it first. Throws std::logic_error if a stranger gets in.
void visit_door(std::string_view bytes);

}  // namespace pipewright::test
