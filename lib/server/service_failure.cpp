#include "server/service_failure.h"

#include <new>

#include "base/log.h"

namespace dslaunch::server {

void ServiceFailure::record(const std::exception& error) noexcept {
    try {
        log_error("serve", "{}", error.what());
    } catch (const std::exception&) {
        // If the log cannot be written, text() still returns the message.
    }
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    try {
        text_ = error.what();
    } catch (const std::bad_alloc&) {
        text_ = "no memory";  // so short that it is stored without an allocation
    }
}

std::string ServiceFailure::text() const {
    const std::lock_guard lock(mutex_);
    return text_;
}

std::exception_ptr ServiceFailure::error() const {
    const std::lock_guard lock(mutex_);
    return error_;
}

}  // namespace dslaunch::server
