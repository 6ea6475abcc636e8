// The connections to a port that anybody can reach, until their guests have sent the job's key. A
// host sends the key in its first packet, so that silent strangers cost only their own connection.
// If the network changed the key on the way, the host gets an answer that only holders of the key
// can recognize. The host then knows that the network is the cause, and that the port is not a
// stranger's. Owned and polled by one thread; no call blocks.
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

// The largest number of guests at once; a further guest replaces the oldest guest.
inline constexpr size_t kGuestsMax = 256;
// The time that a guest has to send the key.
inline constexpr std::chrono::milliseconds kGuestMax{5'000};
inline constexpr size_t kGuestKeyBytesMax = 64;
inline constexpr size_t kGuestAnswerBytes = 32;
// The largest number of times that a host opens the connection if its key arrives changed.
inline constexpr int kGuestOpeningsMax = 5;

// Returns the answer with which this side tells MEANING to a host. Only a host that has KEY
// understands the answer.
[[nodiscard]] std::string guest_answer(std::string_view key, std::string_view meaning);
// Returns the answer to a guest whose key was changed on the way; KEY is the key that arrived.
[[nodiscard]] std::string changed_key_answer(std::string_view key);

// The state of an answer on arrival: unchanged, with changed bits, or not the expected answer.
enum class Arrival { kWhole, kChanged, kOther };
// Compares RECEIVED with the answer EXPECTED. A few changed bits do not turn it into another
// answer: two different answers differ in about half of their bits.
[[nodiscard]] Arrival arrival_of(std::string_view received, std::string_view expected);

// The guests of one listening agent.
class Guests {
  public:
    using Time = std::chrono::steady_clock::time_point;
    // Takes the connection of a guest after the guest has sent the key. The connection is
    // non-blocking.
    using Proven = std::function<void(UniqueFd)>;

    explicit Guests(Proven proven) : proven_(std::move(proven)) {}

    // KEY is everything that a guest sends before it gets an answer. REQUIRES: 1 to
    // kGuestKeyBytesMax bytes.
    void set_key(std::string key);
    // Accepts some of the connections that wait at LISTENER, which does not block.
    void accept_from(int listener, Time now);
    // Reads from FD. Returns false if FD belongs to no guest. REQUIRES: if FD is one of
    // descriptors(), it is readable.
    [[nodiscard]] bool hear(int fd);
    // Closes the connections of guests whose time is over.
    void drop_late(Time now);
    // Returns the time at which drop_late() must be called next; nothing if there are no guests.
    [[nodiscard]] std::optional<Time> next_late() const;
    // Returns the guests' descriptors, to be polled for input.
    [[nodiscard]] std::vector<int> descriptors() const;
    // empty() returns true if there are no guests. clear() closes the connections of all guests.
    [[nodiscard]] bool empty() const { return guests_.empty(); }
    void clear() { guests_.clear(); }

  private:
    struct Guest {
        UniqueFd socket;
        Time until;
        std::string received;
        bool refused = false;  // changed_key_answer() was sent; the guest is removed once it has
                               // read this answer
    };
    void make_room();
    // Reads from GUEST. Returns false if it must be removed, or if proven_ has taken its
    // connection.
    [[nodiscard]] bool stays(Guest& guest);

    Proven proven_;
    std::string key_;
    std::string changed_key_;
    std::list<Guest> guests_;  // in the order of their arrival
};

}  // namespace dslaunch::launch
