// A proxy on loopback between agents that call back and their launcher. It passes bytes on in both
// directions, keeps a copy of them, and harms one TLS record in the given way. It has its own
// thread.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "support/listener.h"

namespace dslaunch::test {

enum class Harm { kNone, kFlip, kPutIn, kDrop, kReplay };

struct HarmPlan {
    Harm harm = Harm::kNone;
    bool to_agent = true;
    // The harm hits the first encrypted record in its direction that has at least BYTES_MIN bytes,
    // after SKIPPED other records.
    int skipped = 0;
    size_t bytes_min = 0;
};

class ManInTheMiddle {
  public:
    // LAUNCHER_PORT is called for each new connection, and may wait. If it returns 0, the
    // connection is closed.
    explicit ManInTheMiddle(std::function<int()> launcher_port, HarmPlan plan = {})
        : launcher_port_(std::move(launcher_port)), plan_(plan) {
        thread_ = std::thread([this] { serve(); });
    }
    ManInTheMiddle(const ManInTheMiddle&) = delete;
    ManInTheMiddle& operator=(const ManInTheMiddle&) = delete;
    ~ManInTheMiddle() {
        ended_ = true;
        thread_.join();
    }

    // Closes every connection on the launcher's side. The agents' connections stay open, but nobody
    // answers.
    void cut_launcher_off() { cut_ = true; }

    [[nodiscard]] int port() const { return listener_.port; }
    [[nodiscard]] bool harm_done() const { return harm_done_; }
    // Return all bytes that the agents have sent, or that the launcher has sent.
    [[nodiscard]] std::string from_agents() const { return kept(0); }
    [[nodiscard]] std::string from_launcher() const { return kept(1); }

  private:
    static constexpr size_t kOpeningBytes = 16;  // sent in clear, before the records
    static constexpr size_t kRecordHeadBytes = 5;
    static constexpr unsigned char kRecordTypeMin = 0x14;
    static constexpr unsigned char kRecordTypeMax = 0x17;
    static constexpr char kEncrypted = 0x17;

    struct Way {
        std::string waiting;  // bytes that are not yet a whole record
        bool opened = false;
        int encrypted = 0;
    };
    struct Connection {
        UniqueFd ends[2];  // agent, launcher
        Way ways[2];       // from the agent, from the launcher
    };

    [[nodiscard]] std::string kept(size_t from) const {
        const std::lock_guard lock(mutex_);
        return kept_[from];
    }

    void serve() {
        while (!ended_) {
            if (cut_) {
                for (Connection& each : connections_) each.ends[1].reset();
            }
            std::vector<pollfd> entries = {{listener_.fd.get(), POLLIN, 0}};
            for (const Connection& each : connections_)
                for (const UniqueFd& end : each.ends) entries.push_back({end.get(), POLLIN, 0});
            if (::poll(entries.data(), entries.size(), 5) <= 0) continue;
            size_t at = 1;
            for (Connection& each : connections_) {
                const bool ready[2] = {entries[at].revents != 0, entries[at + 1].revents != 0};
                at += 2;
                for (const size_t from : {0U, 1U})
                    if (ready[from] && each.ends[from].valid() && !pass(each, from))
                        each.ends[0].reset(), each.ends[1].reset();
            }
            connections_.remove_if([](const Connection& each) { return !each.ends[0].valid(); });
            if (entries[0].revents != 0) accept_one();
        }
    }

    void accept_one() {
        UniqueFd agent(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
        const int port = launcher_port_();
        if (port == 0) return;
        UniqueFd launcher = connect_to(port);
        if (!launcher.valid()) return;
        connections_.emplace_back();
        connections_.back().ends[0] = std::move(agent);
        connections_.back().ends[1] = std::move(launcher);
    }

    // Passes bytes on. Returns false when the connection has ended.
    bool pass(Connection& connection, size_t from) {
        char block[65536];
        const ssize_t n = ::recv(connection.ends[from].get(), block, sizeof block, 0);
        if (n <= 0) return false;
        const std::string_view bytes(block, static_cast<size_t>(n));
        if (cut_) return true;
        {
            const std::lock_guard lock(mutex_);
            kept_[from] += bytes;
        }
        Way& way = connection.ways[from];
        way.waiting += bytes;
        const std::string out = take_records(way, from == 1);
        return write_full(connection.ends[1 - from].get(), std::string_view(out)) == 0;
    }

    std::string take_records(Way& way, bool to_agent) {
        std::string out;
        if (!way.opened && way.waiting.size() >= kOpeningBytes) {
            way.opened = true;
            out = way.waiting.substr(0, kOpeningBytes);
            way.waiting.erase(0, kOpeningBytes);
        }
        while (way.opened && way.waiting.size() >= kRecordHeadBytes) {
            const auto byte = [&](size_t i) { return static_cast<unsigned char>(way.waiting[i]); };
            // Bytes that are not a record pass unchanged, because such a channel does not encrypt.
            if (byte(0) < kRecordTypeMin || byte(0) > kRecordTypeMax)
                return out + std::exchange(way.waiting, {});
            const size_t length = kRecordHeadBytes + size_t{byte(3)} * 256 + byte(4);
            if (way.waiting.size() < length) break;
            out += harmed(way, way.waiting.substr(0, length), to_agent);
            way.waiting.erase(0, length);
        }
        return out;
    }

    std::string harmed(Way& way, std::string record, bool to_agent) {
        if (record[0] != kEncrypted) return record;
        const bool is_meant = plan_.to_agent == to_agent && way.encrypted++ >= plan_.skipped &&
                              record.size() >= plan_.bytes_min;
        if (!is_meant || plan_.harm == Harm::kNone || harm_done_.exchange(true)) return record;
        std::string changed = record;
        changed[record.size() / 2] = static_cast<char>(changed[record.size() / 2] ^ 1);
        switch (plan_.harm) {
            case Harm::kNone:
                return record;
            case Harm::kFlip:
                return changed;
            case Harm::kPutIn:
                return changed + record;
            case Harm::kDrop:
                return "";
            case Harm::kReplay:
                return record + record;
        }
        return record;
    }

    std::function<int()> launcher_port_;
    HarmPlan plan_;
    Listener listener_ = listen_on_loopback();
    std::list<Connection> connections_;
    mutable std::mutex mutex_;
    std::string kept_[2];  // from agents, from the launcher; guarded by mutex_
    std::atomic<bool> harm_done_ = false;
    std::atomic<bool> ended_ = false;
    std::atomic<bool> cut_ = false;
    std::thread thread_;
};

}  // namespace dslaunch::test
