// Events: what a stream had still to do at one moment, and when the last of it was done.
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace neuron {

// `*event` is made at its first record. With timing its completion is watched in the background.
void record_event(void** event, c10::Stream stream, c10::DeviceIndex device, c10::EventFlag flag);
void block_stream(void* event, c10::Stream stream);
bool query_event(void* event);
void synchronize_event(void* event);
double elapsed_time(void* start, void* end);  // milliseconds; both must be done
void destroy_event(void* event) noexcept;

}  // namespace neuron
