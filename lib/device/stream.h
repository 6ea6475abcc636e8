// Streams of a device: work that is done in order, later than it was submitted. Events mark
// positions in that order. A stream uses an event to wait for another stream; the host uses
// await_event(). The CUDA plugin implements them with streams of a GPU, tests with threads. Data
// path: executor's lanes -> [here] -> device.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"

namespace dslaunch::device {

// A mark in a stream, after all work that was submitted before it. An event can be recorded again,
// for example in the next step. One thread records the event; any thread may query it.
class Event {
  public:
    virtual ~Event() = default;
    // Returns true if the work before the last record() is done; also returns true before the first
    // record(). Does not block. Throws Error if the device has failed.
    [[nodiscard]] virtual bool is_reached() = 0;
    // Returns the time on the device from EARLIER to this event. REQUIRES: both are reached, and
    // were made by streams of the same device.
    [[nodiscard]] virtual Duration since(const Event& earlier) const = 0;
};

// A stream of a device. Functions throw Error{kSetup} if the device fails. A call blocks only while
// the device has no room for more work. One thread at a time, except for check().
class Stream {
  public:
    virtual ~Stream() = default;
    // Returns an event of this device that is not recorded yet.
    [[nodiscard]] virtual std::unique_ptr<Event> make_event() = 0;
    // Makes EVENT mark all work that was submitted to this stream so far.
    virtual void record(Event& event) = 0;
    // Makes all later work of this stream wait for EVENT, which some stream of the device has
    // recorded.
    virtual void wait(Event& event) = 0;
    // Throws Error{kRankFailed} if the device has failed at submitted work. Any thread.
    virtual void check() = 0;
};

// Options of a wait for a device. CHECK is called repeatedly during the wait; it throws if the wait
// must end, for example because a peer failed. LIMIT is the longest wait.
struct AwaitOptions {
    std::function<void()> check = [] {};
    Duration limit{};
    Duration watch_closely{};  // time in which the host polls without pauses at first; this
                               // occupies a processor
};

// Returns true when EVENT is reached, false after the limit. Throws what the event and CHECK throw.
[[nodiscard]] bool await_event(Event& event, const AwaitOptions& options);

// The pauses between two checks of a device. The first ones are short, because most waits are
// short.
class Pauses {
  public:
    // Sleeps for the next pause.
    void pause();

  private:
    Duration next_ = std::chrono::microseconds(20);
};

}  // namespace dslaunch::device
