// Streams, events and graphs of the host's CUDA table (tests/support/host_cuda.hpp): what lies on
// a stream is done in the order that its HostOrder says, within what streams and events promise. A
// capture keeps what is put on its streams as a graph of what needs what, and refuses what CUDA
// refuses; a launch does its work in an order of its own that keeps these needs.
//
// Functions return as those of exec/devices/cuda/module_api.h. Any thread may call.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tests/support/host_cuda.hpp"
#include "tests/support/profiling/host_activities.hpp"

namespace pipewright::tests::host {

void* make_stream(HostOrder order);
void release_stream(void* stream);
int put(void* stream, std::function<void()> work, const Label& label = {});

/// Of a capture: from the launch on the work waits until `can`, which other graphs bring about.
int put_when(void* stream, std::function<bool()> can, std::function<void()> work,
             const Label& label = {});
bool is_captured(void* stream);

void* make_event();
void release_event(void* event);
int record(void* event, void* stream);
int mark(void* event, void* stream);
int stream_waits(void* stream, void* event);
int wait_for_event(void* event);
int is_over(void* event);
int elapsed_ms(void* from, void* to, float* ms);

int begin_capture(void* stream);
void* end_capture(void* stream);
int launch(void* graph, void* stream);
void release_graph(void* graph);

/// Keeps the sentence for why(); gives 1.
int failed(const std::string& what);
/// The calling thread's last failure.
const char* why();

}  // namespace pipewright::tests::host
