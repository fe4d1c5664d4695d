// Streams. The runtime orders work by data alone, so a stream is the list of work it must wait for.
#pragma once

#include <Python.h>
#include <c10/core/Stream.h>

#include <memory>
#include <vector>

#include "device/token.h"

namespace neuron {

// Called by the dispatcher after every execution, with the GIL held: `token` (stolen) has
// block_until_ready() and joins the current stream of `device`. May wait for old work when too
// much is outstanding, which bounds how far Python runs ahead.
void note_work(c10::DeviceIndex device, PyObject* token, const char* op = nullptr);

// Work that is queued but not yet dispatched must be noted before anybody waits: the hook runs at
// the start of every wait, query and event record. One hook; null removes it.
using FlushHook = void (*)(c10::DeviceIndex device);
void set_flush_hook(FlushHook hook);

c10::Stream current_stream(c10::DeviceIndex device);
c10::Stream default_stream(c10::DeviceIndex device);
c10::Stream pooled_stream(c10::DeviceIndex device, int priority);
int stream_priority(c10::Stream stream);
c10::Stream exchange_stream(c10::Stream stream);  // returns the stream that was current
void* stream_handle(c10::Stream stream);

// Waits for the work of one stream or of a whole device, then raises the first error it left.
void synchronize_stream(c10::Stream stream);
void synchronize_device(c10::DeviceIndex device);
bool query_stream(c10::Stream stream);

// What a stream has still to do, and a way to make it wait for more.
std::vector<std::shared_ptr<Token>> outstanding_work(c10::Stream stream);
void add_work(c10::Stream stream, const std::vector<std::shared_ptr<Token>>& work);

// Drops the records of work known to be done.
void forget_finished_work();

}  // namespace neuron
