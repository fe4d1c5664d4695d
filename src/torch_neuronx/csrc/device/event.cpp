#include "device/event.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "device/stream.h"
#include "device/waiter.h"

namespace neuron {
namespace {

// One record of an event.
struct Moment {
  std::vector<std::shared_ptr<Token>> work;
  Clock::time_point recorded;

  // An event is over when the work before it is, but not before it was recorded.
  Clock::time_point finished() const {
    Clock::time_point last = recorded;
    for (const auto& token : work) {
      last = std::max(last, token->finished());
    }
    return last;
  }
};

// The same event may be recorded anew while another thread waits for it.
class Event {
 public:
  void record(Moment moment) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::swap(moment_, moment);
  }

  Moment moment() {
    std::lock_guard<std::mutex> lock(mutex_);
    return moment_;
  }

 private:
  std::mutex mutex_;
  Moment moment_;
};

Event& event_at(void* event) {
  TORCH_CHECK(event != nullptr, "neuron event: it was never recorded. Call event.record() first.");
  return *static_cast<Event*>(event);
}

}  // namespace

void record_event(void** event, c10::Stream stream, c10::DeviceIndex device, c10::EventFlag flag) {
  TORCH_CHECK(device == -1 || device == stream.device_index(),
              "neuron event: it belongs to neuron:", static_cast<int>(device),
              " and cannot be recorded on a stream of ", stream.device(), ". Make one event for each device.");
  auto work = outstanding_work(stream);
  if (flag == c10::EventFlag::BACKEND_DEFAULT) {
    watch(work);
  }
  if (*event == nullptr) {
    *event = new Event();
  }
  event_at(*event).record({std::move(work), Clock::now()});
}

void block_stream(void* event, c10::Stream stream) { add_work(stream, event_at(event).moment().work); }

bool query_event(void* event) { return all_done(event_at(event).moment().work); }

// Errors stay with the streams: waiting for an event reports none.
void synchronize_event(void* event) {
  for (const auto& token : event_at(event).moment().work) {
    token->wait();
  }
}

double elapsed_time(void* start, void* end) {
  const Moment first = event_at(start).moment();
  const Moment last = event_at(end).moment();
  TORCH_CHECK(all_done(first.work) && all_done(last.work),
              "Both events must be completed before calculating elapsed time. Call end.synchronize() first.");
  return std::chrono::duration<double, std::milli>(last.finished() - first.finished()).count();
}

void destroy_event(void* event) noexcept { delete static_cast<Event*>(event); }

}  // namespace neuron
