#include "launch/network/guests.h"

#include <openssl/crypto.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace dslaunch::launch {
namespace {

// Guests taken at once, so that the owner's other descriptors are heard between them.
constexpr int kAcceptedAtOnce = 64;

// Ends a connection without leaving its port in TIME_WAIT, where a program that listens on it next
// would stumble.
void forget(int fd) {
    const linger at_once{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

}  // namespace

void Guests::accept_from(int listener, Time now) {
    for (int taken = 0; taken < kAcceptedAtOnce; ++taken) {
        UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket.valid()) {
            // No descriptors left: the oldest stranger gives way.
            if ((errno != EMFILE && errno != ENFILE) || guests_.empty()) return;
            guests_.pop_front();
            continue;
        }
        forget(socket.get());
        make_room();
        guests_.push_back({std::move(socket), now + kGuestMax, {}});
    }
}

void Guests::make_room() {
    if (guests_.size() < kGuestsMax) return;
    // The oldest guest may have said the key meanwhile.
    static_cast<void>(stays(guests_.front()));
    guests_.pop_front();
}

bool Guests::stays(Guest& guest) {
    char block[kGuestKeyBytesMax];
    const ssize_t n = ::recv(guest.socket.get(), block, sizeof block, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) return false;
    guest.received.append(block, static_cast<size_t>(n));
    if (guest.received.size() < key_.size()) return true;
    // The time of the comparison tells nothing about the key.
    if (guest.received.size() == key_.size() &&
        CRYPTO_memcmp(guest.received.data(), key_.data(), key_.size()) == 0) {
        proven_(std::move(guest.socket));
    }
    return false;
}

bool Guests::hear(int fd) {
    const auto guest = std::ranges::find_if(
        guests_, [fd](const Guest& entry) { return entry.socket.get() == fd; });
    if (guest == guests_.end()) return false;
    if (!stays(*guest)) guests_.erase(guest);
    return true;
}

void Guests::drop_late(Time now) {
    while (!guests_.empty() && now >= guests_.front().until) guests_.pop_front();
}

std::optional<Guests::Time> Guests::next_late() const {
    if (guests_.empty()) return std::nullopt;
    return guests_.front().until;
}

std::vector<int> Guests::descriptors() const {
    std::vector<int> open;
    for (const Guest& guest : guests_) open.push_back(guest.socket.get());
    return open;
}

}  // namespace dslaunch::launch
