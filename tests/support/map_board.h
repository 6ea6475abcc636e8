// A Board in memory, for ranks that are threads of one test.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/comm/board.h"

namespace dslaunch::test {

using namespace runtime;

class MapBoard final : public Board {
  public:
    void set(const std::string& key, const std::string& value) override {
        const std::lock_guard lock(mutex_);
        values_[key] = value;
        changed_.notify_all();
    }
    std::optional<std::string> get(const std::string& key, Duration limit) override {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, limit, [&] { return values_.count(key) != 0; }))
            return std::nullopt;
        return values_.at(key);
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::string> values_;
};

}  // namespace dslaunch::test
