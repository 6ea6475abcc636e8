// The error that ended a service. Data path: the engine's thread -> [here] -> replies, the exit
// code.
#pragma once

#include <exception>
#include <mutex>
#include <string>

namespace dslaunch::server {

// The failure of a service, if there was one. Threads: any.
class ServiceFailure {
  public:
    // Logs ERROR and records it. REQUIRES: ERROR is being handled.
    void record(const std::exception& error) noexcept;
    // Returns the message; empty if there was no failure.
    [[nodiscard]] std::string text() const;
    // Returns the exception that was thrown; null if there was no failure.
    [[nodiscard]] std::exception_ptr error() const;

  private:
    mutable std::mutex mutex_;
    std::string text_;
    std::exception_ptr error_;
};

}  // namespace dslaunch::server
