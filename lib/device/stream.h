// Streams of a device: work that is done in order, later than it was given. Events mark places in
// that order. A stream waits for another one by an event, and the host by await_event. The CUDA
// plugin has streams of a GPU, tests have threads. Data path: executor's lanes -> [here] -> device.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"

namespace dslaunch::device {

// A place in a stream's order: all work that the stream was given before. An event is recorded
// again in the next step. Threads: one records, any look.
class Event {
  public:
    virtual ~Event() = default;
    // Returns true once the work before the last record() is done, and before the first record().
    // Does not block. Throws Error if the device has failed.
    [[nodiscard]] virtual bool is_reached() = 0;
    // Returns the time on the device from EARLIER to here. REQUIRES: both are reached, and were
    // made by streams of one device.
    [[nodiscard]] virtual Duration since(const Event& earlier) const = 0;
};

// Failures throw Error{kSetup}. No call blocks, unless the device has no room for more work. One
// thread at a time, but for check().
class Stream {
  public:
    virtual ~Stream() = default;
    [[nodiscard]] virtual std::unique_ptr<Event> make_event() = 0;
    // Makes EVENT stand for all work that this stream was given so far.
    virtual void record(Event& event) = 0;
    // Makes all later work of this stream wait for EVENT, which any stream of the device has
    // recorded.
    virtual void wait(Event& event) = 0;
    // Throws Error{kRankFailed} if the device has failed at work that it was given. Any thread.
    virtual void check() = 0;
};

// The options say how the host waits for a device. CHECK throws what has gone wrong elsewhere, and
// is called now and then. LIMIT is the longest wait.
struct AwaitOptions {
    std::function<void()> check = [] {};
    Duration limit{};
    Duration watch_closely{};  // looks again at once for so long, which takes a processor
};

// Returns true once EVENT is reached, false after the limit. Throws what the event and the check
// throw.
[[nodiscard]] bool await_event(Event& event, const AwaitOptions& options);

// The pauses between two looks at a device: short ones first, for most waits are short.
class Pauses {
  public:
    // Sleeps.
    void pause();

  private:
    Duration next_ = std::chrono::microseconds(20);
};

}  // namespace dslaunch::device
