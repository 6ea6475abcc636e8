// Where the ranks of TestBackend meet: each rank is a thread with a backend of its own.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch::test {

// The place where the collectives of the ranks of each group meet, by their number in the order.
class TestBackendWorld {
  public:
    [[nodiscard]] std::string make_id() {
        const std::lock_guard lock(mutex_);
        return "group " + std::to_string(ids_++);
    }
    // Returns false if nobody made that id, or others joined as another number of ranks.
    [[nodiscard]] bool enter(const std::string& id, int ranks) {
        const std::lock_guard lock(mutex_);
        const bool is_made = id.starts_with("group ") && std::stoi(id.substr(6)) < ids_;
        return is_made && sizes_.try_emplace(id, ranks).first->second == ranks;
    }

    struct Place {
        std::string id;
        uint64_t number = 0;
        auto operator<=>(const Place&) const = default;
    };
    // Every rank's bytes, by rank of the group, once all have brought theirs to collective PLACE.
    // They are empty after abort().
    using All = std::vector<std::vector<std::byte>>;
    All exchange(const Place& place, int rank, std::vector<std::byte> mine) {
        std::unique_lock lock(mutex_);
        return meet(lock, place, sizes_.at(place.id), rank, std::move(mine));
    }
    // The same of two ranks, RANKS' first one being this: the lower rank's bytes come first.
    All exchange_pair(const Place& place, std::pair<int, int> ranks, std::vector<std::byte> mine) {
        const auto [low, high] = std::minmax(ranks.first, ranks.second);
        std::unique_lock lock(mutex_);
        const std::string id = place.id + " " + std::to_string(low) + " " + std::to_string(high);
        return meet(lock, {id, place.number}, 2, ranks.first, std::move(mine));
    }
    void abort() {
        const std::lock_guard lock(mutex_);
        aborted_ = true;
        changed_.notify_all();
    }
    void await_abort() {
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
