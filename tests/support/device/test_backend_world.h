// The meeting place of TestBackend's ranks if they are threads of one process. Each rank has its
// own backend.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "support/device/test_meeting.h"

namespace dslaunch::test {

class TestBackendWorld final : public TestMeeting {
  public:
    std::string make_id() override {
        const std::lock_guard lock(mutex_);
        return "group " + std::to_string(ids_++);
    }
    bool enter(const std::string& id, int ranks) override {
        const std::lock_guard lock(mutex_);
        const bool is_made = id.starts_with("group ") && std::stoi(id.substr(6)) < ids_;
        return is_made && sizes_.try_emplace(id, ranks).first->second == ranks;
    }
    All exchange(const Place& place, int rank, std::vector<std::byte> mine) override {
        std::unique_lock lock(mutex_);
        return meet(lock, place, sizes_.at(place.id), rank, std::move(mine));
    }
    All exchange_pair(const Place& place, std::pair<int, int> ranks,
                      std::vector<std::byte> mine) override {
        const auto [low, high] = std::minmax(ranks.first, ranks.second);
        std::unique_lock lock(mutex_);
        const std::string id = place.id + " " + std::to_string(low) + " " + std::to_string(high);
        return meet(lock, {id, place.number}, 2, ranks.first, std::move(mine));
    }
    void abort() override {
        const std::lock_guard lock(mutex_);
        aborted_ = true;
        changed_.notify_all();
    }
    void await_abort() override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return aborted_; });
    }

  private:
    All meet(std::unique_lock<std::mutex>& lock, const Place& place, int ranks, int rank,
             std::vector<std::byte> mine) {
        std::map<int, std::vector<std::byte>>& all = brought_[place];
        all[rank] = std::move(mine);
        changed_.notify_all();
        changed_.wait(lock, [&] { return aborted_ || static_cast<int>(all.size()) == ranks; });
        if (aborted_) return {};
        All values;
        for (const auto& [other, theirs] : all) values.push_back(theirs);
        if (++left_[place] == ranks) {
            brought_.erase(place);
            left_.erase(place);
        }
        return values;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    int ids_ = 0;
    std::map<std::string, int> sizes_;
    std::map<Place, std::map<int, std::vector<std::byte>>> brought_;
    std::map<Place, int> left_;
    bool aborted_ = false;
};

}  // namespace dslaunch::test
