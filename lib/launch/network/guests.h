// Connections at a port that anybody can reach, until each has shown a key. A host shows it with
// its first packet, so silent strangers cost only their own connection. A host whose key was
// changed on the way learns so, in words that only the key's holders recognize: a network that
// changes bytes is not taken for a stranger. Owned and polled by one thread; no call blocks.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace dslaunch::launch {

// The most guests at once; with so many the oldest one goes.
inline constexpr size_t kGuestsMax = 256;
// The time that a guest has to show the key.
inline constexpr std::chrono::milliseconds kGuestMax{5'000};
inline constexpr size_t kGuestKeyBytesMax = 64;
inline constexpr size_t kGuestAnswerBytes = 32;
// The most openings of a host whose key was changed on the way.
inline constexpr int kGuestOpeningsMax = 5;

// Returns the answer that means MEANING to a holder of KEY; it tells nobody else anything.
[[nodiscard]] std::string guest_answer(std::string_view key, std::string_view meaning);
// Returns the answer to a guest with a changed key.
[[nodiscard]] std::string changed_key_answer(std::string_view key);

enum class Arrival { kWhole, kChanged, kOther };
// Compares RECEIVED with EXPECTED, an answer: some changed bits do not make it another one. Two
// answers differ in about half of their bits.
[[nodiscard]] Arrival arrival_of(std::string_view received, std::string_view expected);

class Guests {
  public:
    using Time = std::chrono::steady_clock::time_point;
    // Takes the connection (non-blocking) of a guest that has shown the key.
    using Proven = std::function<void(UniqueFd)>;

    explicit Guests(Proven proven) : proven_(std::move(proven)) {}

    // KEY is all that a guest says before it is answered. REQUIRES: 1 to kGuestKeyBytesMax bytes.
    void set_key(std::string key);
    // Takes some of the connections that wait at LISTENER, which does not block.
    void accept_from(int listener, Time now);
    // Returns false if FD is not a guest's. REQUIRES: FD, of descriptors(), is readable.
    [[nodiscard]] bool hear(int fd);
    // Sends away guests whose time is over.
    void drop_late(Time now);
    // Returns the time at which drop_late() has work.
    [[nodiscard]] std::optional<Time> next_late() const;
    [[nodiscard]] std::vector<int> descriptors() const;
    [[nodiscard]] bool empty() const { return guests_.empty(); }
    void clear() { guests_.clear(); }

  private:
    struct Guest {
        UniqueFd socket;
        Time until;
        std::string received;
        bool refused = false;  // has heard changed_key_answer(), and goes when it has read it
    };
    void make_room();
    // Returns false if the guest goes, or has gone to proven_.
    [[nodiscard]] bool stays(Guest& guest);

    Proven proven_;
    std::string key_;
    std::string changed_key_;
    std::list<Guest> guests_;  // in the order in which they came
};

}  // namespace dslaunch::launch
