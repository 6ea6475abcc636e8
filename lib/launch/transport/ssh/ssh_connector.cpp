#include "launch/transport/ssh/ssh_connector.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "launch/network/interfaces.h"

namespace dslaunch::launch {
namespace {

// Binds FD to ADDRESS before it connects; returns false with errno set.
bool bind_to(int fd, const std::string& address, int family) {
    if (address.empty()) return true;
    const auto list = look_up(address, 0, AI_NUMERICHOST | AI_PASSIVE, nullptr, family);
    if (list) return ::bind(fd, list->ai_addr, list->ai_addrlen) == 0;
    errno = EADDRNOTAVAIL;
    return false;
}

}  // namespace

void SshConnector::begin(std::shared_ptr<addrinfo> addresses, std::string bind_address) {
    addresses_ = std::move(addresses);
    bind_address_ = std::move(bind_address);
    next_ = addresses_.get();
    failure_.clear();
}

bool SshConnector::try_next() {
    for (; next_ != nullptr; next_ = next_->ai_next) {
        socket_ =
            UniqueFd(::socket(next_->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (socket_.valid() && bind_to(socket_.get(), bind_address_, next_->ai_family) &&
            (::connect(socket_.get(), next_->ai_addr, next_->ai_addrlen) == 0 ||
             errno == EINPROGRESS)) {
            next_ = next_->ai_next;
            return true;
        }
        failure_ = errno_text(errno);
        if (!bind_address_.empty()) failure_ += " (BindAddress " + printable(bind_address_) + ")";
    }
    return false;
}

std::optional<int> SshConnector::result() {
    pollfd entry{socket_.get(), POLLOUT, 0};
    if (::poll(&entry, 1, 0) == 0) return std::nullopt;
    int error_number = 0;
    socklen_t length = sizeof error_number;
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error_number, &length);
    if (error_number != 0) failure_ = errno_text(error_number);
    return error_number;
}

}  // namespace dslaunch::launch
