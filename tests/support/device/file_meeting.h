// The meeting place of TestBackend's ranks if they are processes of one machine: files in a folder,
// whose path is the group's unique id. A rank adds its bytes by an atomic rename, so that they are
// there whole or not at all. The other ranks look for them again and again. The bytes of a process
// that has ended never appear, and nobody is notified.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "device/stream.h"
#include "support/device/test_meeting.h"

namespace dslaunch::test {

class FileMeeting final : public TestMeeting {
  public:
    struct Options {
        std::string folder;          // contains the groups' folders; exists; the same on all ranks
        bool abort_is_lost = false;  // abort() does nothing, so that waiting ranks are stuck
    };
    explicit FileMeeting(Options options) : options_(std::move(options)) {}

    std::string make_id() override {
        std::string id = options_.folder + "/group-XXXXXX";
        DSL_CHECK(::mkdtemp(id.data()) != nullptr, "no folder for a group of ranks: {}", id);
        return id;
    }
    bool enter(const std::string& id, int ranks) override {
        if (!id.starts_with(options_.folder) || !std::filesystem::exists(id)) return false;
        // The first rank sets the number of ranks. A link gets its text at the moment when it is
        // made.
        static_cast<void>(::symlink(std::to_string(ranks).c_str(), size_file(id).c_str()));
        return size_of(id) == ranks;
    }
    All exchange(const Place& place, int rank, std::vector<std::byte> mine) override {
        std::vector<int> ranks;
        for (int other = 0; other < size_of(place.id); ++other) ranks.push_back(other);
        return meet({place.id + "/all", place.number}, ranks, rank, std::move(mine));
    }
    All exchange_pair(const Place& place, std::pair<int, int> ranks,
                      std::vector<std::byte> mine) override {
        const auto [low, high] = std::minmax(ranks.first, ranks.second);
        const std::string stem = fmt::format("{}/pair-{}-{}", place.id, low, high);
        return meet({stem, place.number}, {low, high}, ranks.first, std::move(mine));
    }
    void abort() override {
        if (!options_.abort_is_lost) aborted_ = true;
    }
    void await_abort() override {
        device::Pauses pauses;
        while (!aborted_) pauses.pause();
    }

  private:
    static std::string size_file(const std::string& id) { return id + "/ranks"; }
    static int size_of(const std::string& id) {
        return std::stoi(std::filesystem::read_symlink(size_file(id)).string());
    }
    // Returns the path of a rank's file. PLACE's id is the beginning of the path.
    static std::string file_of(const Place& place, int rank) {
        return fmt::format("{}-{}.{}", place.id, place.number, rank);
    }

    All meet(const Place& place, const std::vector<int>& ranks, int rank,
             std::vector<std::byte> mine) {
        if (aborted_) return {};
        bring(file_of(place, rank), mine);
        All all;
        for (const int other : ranks) {
            if (!await(file_of(place, other))) return {};
            all.push_back(other == rank ? mine : bytes_of(file_of(place, other)));
            DSL_CHECK(all.back().size() == mine.size(),
                      "collective {}: rank {} brings {} bytes, rank {} {}", place.number, other,
                      all.back().size(), rank, mine.size());
        }
        // All ranks have arrived here, so nobody still reads the bytes of the previous collective.
        if (place.number > 0) ::unlink(file_of({place.id, place.number - 1}, rank).c_str());
        return all;
    }
    static void bring(const std::string& path, const std::vector<std::byte>& bytes) {
        const std::string written = path + ".part";
        std::ofstream file(written, std::ios::binary);
        file.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
        file.close();
        DSL_CHECK(file.good(), "{} is not written", written);
        std::filesystem::rename(written, path);
    }
    // Waits for the file at PATH. Returns false after abort().
    bool await(const std::string& path) const {
        device::Pauses pauses;
        while (!aborted_ && ::access(path.c_str(), F_OK) != 0) pauses.pause();
        return !aborted_;
    }
    static std::vector<std::byte> bytes_of(const std::string& path) {
        std::ifstream file(path, std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
        return {begin, begin + text.size()};
    }

    Options options_;
    std::atomic<bool> aborted_ = false;
};

}  // namespace dslaunch::test
