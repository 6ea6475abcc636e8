// Connections at a port that anybody can reach, until each has shown a key: a host shows it with
// its first packet, so strangers, who say nothing, cost their own connection only. A host whose key
// was changed on the way is told so, in words that only one with the key can tell from others: a
// network that changes bytes is not taken for a stranger. Owned and polled by one thread; no call
// blocks.
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

// When so many are here the one who came first goes.
inline constexpr size_t kGuestsMax = 256;
// The time that a guest has to show the key.
inline constexpr std::chrono::milliseconds kGuestMax{5'000};
inline constexpr size_t kGuestKeyBytesMax = 64;
inline constexpr size_t kGuestAnswerBytes = 32;
// A host whose key was changed on the way comes so often.
inline constexpr int kGuestOpeningsMax = 5;

// The answer that means MEANING to one who knows KEY; it tells nobody else anything.
[[nodiscard]] std::string guest_answer(std::string_view key, std::string_view meaning);
// What a guest hears whose key was another one.
[[nodiscard]] std::string changed_key_answer(std::string_view key);

enum class Arrival { kWhole, kChanged, kOther };
// Compares RECEIVED with EXPECTED, an answer: some changed bits do not make it another one. Two
// answers differ in about half of their bits.
[[nodiscard]] Arrival arrival_of(std::string_view received, std::string_view expected);

class Guests {
  public:
    using Time = std::chrono::steady_clock::time_point;
    // Takes the connection, which does not block, of a guest that has shown the key.
    using Proven = std::function<void(UniqueFd)>;

    explicit Guests(Proven proven) : proven_(std::move(proven)) {}

    // KEY is all that a guest says before it is answered. REQUIRES: 1 to kGuestKeyBytesMax bytes.
    void set_key(std::string key);
    // Takes some of those who wait at LISTENER, which does not block.
    void accept_from(int listener, Time now);
    // Returns false if FD is no guest's. REQUIRES: FD, of descriptors(), is readable.
    [[nodiscard]] bool hear(int fd);
    // Sends those away whose time is over.
    void drop_late(Time now);
    // The time at which drop_late() has something to do.
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
