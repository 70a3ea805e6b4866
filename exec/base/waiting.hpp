// The ways in which a thread of a rank lets a moment pass. No state, any thread.
#pragma once

#include <cstdint>

namespace pipewright::exec::local {

/// The machine's steady clock in nanoseconds.
std::int64_t steady_ns();
/// CPU time that the calling thread has used so far, in nanoseconds. Takes about 0.3 us.
std::int64_t thread_cpu_ns();
/// A hint to the core that this thread spins.
void pause_core();
/// Sleeps until that moment of the steady clock.
void sleep_until_steady(std::int64_t deadline_ns);
/// Asks for sleeps of this thread to end on time instead of up to 50 us late.
void ask_for_exact_sleeps();

}  // namespace pipewright::exec::local
