#include "launch/network/guests.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "base/check.h"

namespace dslaunch::launch {
namespace {

// The largest number of guests that are accepted in one call, so that the owner can serve its other
// descriptors in between.
constexpr int kAcceptedAtOnce = 64;

// Configures FD so that closing it leaves no port in TIME_WAIT, which would disturb the next
// program that listens on the port.
void forget(int fd) {
    const linger at_once{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

// An answer is recognized if at most this many of its 256 bits have changed. Two different answers
// differ in 128 bits, plus or minus 8.
constexpr int kChangedBitsMax = 64;

}  // namespace

std::string guest_answer(std::string_view key, std::string_view meaning) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int length = 0;
    const auto* const text = reinterpret_cast<const unsigned char*>(meaning.data());
    const auto* const made = ::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), text,
                                    meaning.size(), digest.data(), &length);
    DSL_CHECK(made != nullptr && length == kGuestAnswerBytes,
              "an HMAC has the wrong length of {} bytes", length);
    return {reinterpret_cast<const char*>(digest.data()), length};
}

std::string changed_key_answer(std::string_view key) {
    return guest_answer(key, "your key was changed in transit");
}

Arrival arrival_of(std::string_view received, std::string_view expected) {
    if (received.size() != expected.size()) return Arrival::kOther;
    int changed = 0;
    for (size_t i = 0; i < received.size(); ++i)
        changed += std::popcount(static_cast<unsigned char>(received[i] ^ expected[i]));
    if (changed == 0) return Arrival::kWhole;
    return changed <= kChangedBitsMax ? Arrival::kChanged : Arrival::kOther;
}

void Guests::set_key(std::string key) {
    changed_key_ = changed_key_answer(key);
    key_ = std::move(key);
}

void Guests::accept_from(int listener, Time now) {
    for (int taken = 0; taken < kAcceptedAtOnce; ++taken) {
        UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket.valid()) {
            // If no file descriptors are left, the oldest guest is dropped.
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
    // The oldest guest may have sent the key meanwhile.
    static_cast<void>(stays(guests_.front()));
    guests_.pop_front();
}

bool Guests::stays(Guest& guest) {
    char block[kGuestKeyBytesMax];
    const ssize_t n = ::recv(guest.socket.get(), block, sizeof block, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0 || guest.refused) return false;
    guest.received.append(block, static_cast<size_t>(n));
    if (guest.received.size() < key_.size()) return true;
    if (guest.received.size() > key_.size()) return false;
    // The time that the comparison takes reveals nothing about the key.
    if (CRYPTO_memcmp(guest.received.data(), key_.data(), key_.size()) == 0) {
        proven_(std::move(guest.socket));
        return false;
    }
    // The connection stays open until the guest has read the answer, since closing it now would
    // discard the answer.
    guest.refused = ::send(guest.socket.get(), changed_key_.data(), changed_key_.size(),
                           MSG_NOSIGNAL) == static_cast<ssize_t>(changed_key_.size());
    return guest.refused;
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
