#include "device/stream.h"

#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include "device/guard.h"
#include "device/waiter.h"
#include "max_devices.h"
#include "runtime/bridge.h"

#include <c10/util/Exception.h>

namespace neuron {
namespace {

using Work = std::vector<std::shared_ptr<Token>>;

constexpr size_t kPoolSize = 32;                // streams of each priority, handed out in turn
constexpr size_t kStreams = 1 + 2 * kPoolSize;  // 0 is the default stream, high priority comes last
constexpr size_t kMaxOutstanding = 64;          // work a stream holds before it waits for the older half

struct StreamState {
  std::mutex mutex;  // never held while waiting, or for the GIL
  std::deque<std::shared_ptr<Token>> work;
  std::exception_ptr error;  // of work that was waited for before anybody asked
};

struct DeviceStreams {
  std::array<StreamState, kStreams> streams;
  std::array<std::atomic<uint32_t>, 2> next{};  // by priority: normal, high
};

// Leaked: tokens must not be dropped after the interpreter is gone.
std::array<DeviceStreams, kMaxDevices>& devices() {
  static auto* all = new std::array<DeviceStreams, kMaxDevices>();
  return *all;
}

thread_local std::array<uint8_t, kMaxDevices> current{};  // stream id by device

std::atomic<FlushHook> flush_hook{nullptr};

c10::Stream stream_at(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, device), id);
}

StreamState& state_of(c10::DeviceIndex device, size_t id) { return devices()[static_cast<size_t>(device)].streams[id]; }

StreamState& state_of(c10::Stream stream) {
  TORCH_CHECK(stream.device_type() == c10::DeviceType::PrivateUse1, "expected a neuron stream, got ", stream,
              ". Make one with torch.Stream(device='neuron').");
  check_device_index(stream.device_index());
  const auto id = stream.id();
  TORCH_CHECK(id >= 0 && static_cast<size_t>(id) < kStreams, "neuron: there is no stream ", id, " on ", stream.device(),
              ". Make streams with torch.Stream(device='neuron').");
  return state_of(stream.device_index(), static_cast<size_t>(id));
}

void flush(c10::DeviceIndex device) {
  if (runtime::in_bad_fork()) {
    runtime::ensure_initialized();  // raises
  }
  if (FlushHook hook = flush_hook.load(std::memory_order_acquire)) {
    hook(device);
  }
}

Work snapshot(StreamState& state) {
  std::lock_guard<std::mutex> lock(state.mutex);
  return {state.work.begin(), state.work.end()};
}

Work pop_finished(StreamState& state) {
  Work finished;
  std::lock_guard<std::mutex> lock(state.mutex);
  while (!state.work.empty() && state.work.front()->done()) {
    finished.push_back(std::move(state.work.front()));
    state.work.pop_front();
  }
  return finished;
}

// Keeps the first error. Dropping another may take the GIL, so it happens outside the lock.
void keep(StreamState& state, std::exception_ptr error) {
  std::lock_guard<std::mutex> lock(state.mutex);
  if (state.error == nullptr) {
    std::swap(state.error, error);
  }
}

// Takes finished work off the front and keeps its first error for whoever waits next.
void take_finished(StreamState& state) {
  for (const auto& token : pop_finished(state)) {
    if (auto error = token->take_error(); error != nullptr) {
      keep(state, std::move(error));
    }
  }
}

std::exception_ptr take_error(StreamState& state) {
  std::lock_guard<std::mutex> lock(state.mutex);
  return std::exchange(state.error, nullptr);
}

// Tokens stay listed until they are done, so that two threads waiting for one stream both wait.
std::exception_ptr drain(StreamState& state) {
  for (const auto& token : snapshot(state)) {
    token->wait();
  }
  take_finished(state);
  return take_error(state);
}

void wait_for_older_half(StreamState& state) {
  Work work = snapshot(state);
  work.resize(work.size() / 2);
  for (const auto& token : work) {
    token->wait();
  }
  take_finished(state);
}

// What is wrong with the device comes first: it names the op, the stream's error may be its echo.
void raise_errors(c10::DeviceIndex device, const std::exception_ptr& error) {
  if (runtime::is_initialized()) {
    runtime::raise_deferred_errors(device);
  }
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
}

}  // namespace

void note_work(c10::DeviceIndex device, PyObject* token, const char* op) {
  StreamState& state = state_of(device, current[static_cast<size_t>(device)]);
  auto work = std::make_shared<Token>(token, op);
  bool full = false;
  {
    std::lock_guard<std::mutex> lock(state.mutex);
    state.work.push_back(std::move(work));
    full = state.work.size() >= kMaxOutstanding;
  }
  if (full) [[unlikely]] {
    wait_for_older_half(state);
  }
}

void set_flush_hook(FlushHook hook) { flush_hook.store(hook, std::memory_order_release); }

c10::Stream current_stream(c10::DeviceIndex device) {
  check_device_index(device);
  return stream_at(device, current[static_cast<size_t>(device)]);
}

c10::Stream default_stream(c10::DeviceIndex device) {
  check_device_index(device);
  return stream_at(device, 0);
}

c10::Stream pooled_stream(c10::DeviceIndex device, int priority) {
  check_device_index(device);
  const size_t high = priority < 0 ? 1 : 0;
  const uint32_t turn = devices()[static_cast<size_t>(device)].next[high].fetch_add(1, std::memory_order_relaxed);
  return stream_at(device, static_cast<c10::StreamId>(1 + high * kPoolSize + turn % kPoolSize));
}

int stream_priority(c10::Stream stream) {
  state_of(stream);
  return static_cast<size_t>(stream.id()) > kPoolSize ? -1 : 0;
}

c10::Stream exchange_stream(c10::Stream stream) {
  state_of(stream);
  const auto device = stream.device_index();
  return stream_at(device, std::exchange(current[static_cast<size_t>(device)], static_cast<uint8_t>(stream.id())));
}

void* stream_handle(c10::Stream stream) { return &state_of(stream); }

void synchronize_stream(c10::Stream stream) {
  StreamState& state = state_of(stream);
  flush(stream.device_index());
  raise_errors(stream.device_index(), drain(state));
}

void synchronize_device(c10::DeviceIndex device) {
  check_device_index(device);
  flush(device);
  std::exception_ptr first;
  for (StreamState& state : devices()[static_cast<size_t>(device)].streams) {
    auto error = drain(state);
    first = first != nullptr ? first : std::move(error);
  }
  raise_errors(device, first);
}

bool query_stream(c10::Stream stream) { return all_done(outstanding_work(stream)); }

Work outstanding_work(c10::Stream stream) {
  StreamState& state = state_of(stream);
  flush(stream.device_index());
  take_finished(state);
  return snapshot(state);
}

void add_work(c10::Stream stream, const Work& work) {
  StreamState& state = state_of(stream);
  std::lock_guard<std::mutex> lock(state.mutex);
  for (const auto& token : work) {
    if (!token->done()) {
      state.work.push_back(token);
    }
  }
}

void forget_finished_work() {
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    for (StreamState& state : devices()[static_cast<size_t>(device)].streams) {
      take_finished(state);
    }
  }
}

}  // namespace neuron
