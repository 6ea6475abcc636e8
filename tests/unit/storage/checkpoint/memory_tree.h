// A file system in memory that records all operations. It can fail at any call, and can ignore a
// sync. power_cut.h shows its states after a power cut. One thread.
#pragma once

#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/checkpoint/disk_sink.h"
#include "storage/checkpoint/file_tree.h"

namespace dslaunch::test {

using namespace storage;

struct Node {
    bool is_folder = false;
    std::map<std::string, int> entries;  // name -> node
    std::string data;
};

enum class OpKind { kEnter, kLeave, kRename, kExchange, kSize, kWrite, kSync };

struct Op {
    OpKind kind = OpKind::kSync;
    int node = 0;            // the node that is synced, or whose entries or data change
    std::string name{};      // a name in folder NODE: kEnter, kLeave, kRename, kExchange
    std::string other{};     // the other name
    int child = 0;           // the node with the name NAME
    int other_child = 0;     // kExchange: the node with the name OTHER
    bool is_folder = false;  // kEnter
    int64_t offset = 0;      // kWrite; in kSize it is the size
    std::string data{};      // kWrite
};

class MemoryTree final : public FileTree {
  public:
    // The nodes, and the operations on them. Node 0 is "/".
    std::vector<Node> nodes{Node{true, {}, {}}};
    std::vector<Op> ops;
    Bytes room = gib(1);
    bool exchanges = true;
    // Call number FAIL_AT fails with error FAIL_WITH. If it is a write, half of it is done.
    int64_t calls = 0;
    int64_t fail_at = -1;
    int fail_with = EIO;
    // Returns true for paths whose sync reports success but does nothing.
    std::function<bool(const std::string& path)> ignores_sync;

    void make_folder(const std::string& path) override {
        call(path, "make the folder");
        enter(path, true);
    }
    std::unique_ptr<FileSink> create(const std::string& path, Bytes bytes) override {
        call(path, "make the file", bytes);
        const int node = enter(path, false);
        ops.push_back({.kind = OpKind::kSize, .node = node, .offset = bytes.value});
        return std::make_unique<Sink>(*this, path, node, bytes);
    }
    std::unique_ptr<FileView> open(const std::string& path) const override {
        const int node = find(path);
        if (node < 0) fail_file({path, "open", ENOENT, {}, {}});
        return std::make_unique<View>(nodes[node].data);
    }
    std::optional<std::vector<FolderEntry>> list(const std::string& folder) const override {
        const int node = find(folder);
        if (node < 0) return std::nullopt;
        std::vector<FolderEntry> entries;
        for (const auto& [name, child] : nodes[node].entries) {
            const Node& entry = nodes[child];
            entries.push_back({name, entry.is_folder, Bytes{std::ssize(entry.data)}});
        }
        return entries;
    }
    void rename(const std::string& from, const std::string& to) override {
        call(to, "put in place");
        const auto [folder, name] = place(from);
        const std::string other = place(to).second;
        auto& entries = nodes[folder].entries;
        const auto found = entries.find(name);
        if (found == entries.end()) fail_file({from, "put in place", ENOENT, {}, {}});
        const int child = found->second;
        const auto target = entries.find(other);
        if (target != entries.end() && !nodes[target->second].entries.empty())
            fail_file({to, "put in place", ENOTEMPTY, {}, {}});
        entries.erase(name);
        entries[other] = child;
        ops.push_back({OpKind::kRename, folder, name, other, child});
    }
    bool exchange(const std::string& a, const std::string& b) override {
        if (!exchanges) return false;
        call(b, "put in place");
        const auto [folder, name] = place(a);
        const std::string other = place(b).second;
        auto& entries = nodes[folder].entries;
        ops.push_back(
            {OpKind::kExchange, folder, name, other, entries.at(name), entries.at(other)});
        std::swap(entries.at(name), entries.at(other));
        return true;
    }
    void sync_folder(const std::string& folder) override {
        call(folder, "flush the folder");
        sync(folder, find(folder));
    }
    void remove_file(const std::string& path) override {
        call(path, "remove");
        leave(path);
    }
    void remove_folder(const std::string& path) override {
        const auto entries = list(path);
        if (!entries) return;
        for (const FolderEntry& entry : *entries) {
            const std::string inside = path + "/" + entry.name;
            entry.is_folder ? remove_folder(inside) : remove_file(inside);
        }
        call(path, "remove the folder");
        leave(path);
    }
    std::unique_ptr<FileLock> lock(const std::string& path, const std::string& /*owner*/) override {
        if (find(path) < 0) enter(path, false);
        if (!locks_->insert(path).second) return nullptr;
        return std::make_unique<Lock>(locks_, path);
    }
    Bytes free_room(const std::string&) const override { return room; }

    // Returns the node of PATH; -1: there is no such path.
    [[nodiscard]] int find(std::string_view path) const {
        int node = 0;
        for (size_t at = 0; at < path.size() && node >= 0;) {
            const size_t end = std::min(path.find('/', at), path.size());
            if (end > at) node = child(node, path.substr(at, end - at));
            at = end + 1;
        }
        return node;
    }
    [[nodiscard]] std::string& data(const std::string& path) {
        return nodes.at(static_cast<size_t>(find(path))).data;
    }

  private:
    class View final : public FileView {
      public:
        explicit View(std::string data) : data_(std::move(data)) {}
        std::span<const std::byte> bytes() const override {
            return std::as_bytes(std::span(data_));
        }

      private:
        std::string data_;
    };
    class Sink final : public FileSink {
      public:
        Sink(MemoryTree& tree, std::string path, int node, Bytes need)
            : tree_(tree), path_(std::move(path)), node_(node), need_(need) {}
        void write(std::span<const std::byte> bytes) override {
            const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
            std::string& data = tree_.nodes[node_].data;
            const bool fails = tree_.calls == tree_.fail_at;
            const std::string_view part = fails ? text.substr(0, text.size() / 2) : text;
            tree_.ops.push_back({.kind = OpKind::kWrite,
                                 .node = node_,
                                 .offset = std::ssize(data),
                                 .data = std::string(part)});
            data += part;
            tree_.call(path_, "write", need_);
        }
        void sync() override {
            tree_.call(path_, "flush", need_);
            tree_.sync(path_, node_);
        }

      private:
        MemoryTree& tree_;
        std::string path_;
        int node_;
        Bytes need_;
    };
    class Lock final : public FileLock {
      public:
        Lock(std::shared_ptr<std::set<std::string>> locks, std::string path)
            : locks_(std::move(locks)), path_(std::move(path)) {}
        ~Lock() override { locks_->erase(path_); }

      private:
        std::shared_ptr<std::set<std::string>> locks_;  // locks of the tree; they may outlive it
        std::string path_;
    };

    void call(const std::string& path, std::string_view doing, Bytes need = {}) {
        if (calls++ == fail_at) fail_file({path, doing, fail_with, need, room});
    }
    [[nodiscard]] int child(int folder, std::string_view name) const {
        const auto& entries = nodes[folder].entries;
        const auto found = entries.find(std::string(name));
        return found == entries.end() ? -1 : found->second;
    }
    // Returns the folder's node and the name in it.
    [[nodiscard]] std::pair<int, std::string> place(const std::string& path) const {
        const size_t slash = path.rfind('/');
        const int folder = find(path.substr(0, slash));
        if (folder < 0) fail_file({path, "reach", ENOENT, {}, {}});
        return {folder, path.substr(slash + 1)};
    }
    int enter(const std::string& path, bool is_folder) {
        const auto [folder, name] = place(path);
        if (child(folder, name) >= 0) fail_file({path, "make", EEXIST, {}, {}});
        const int node = static_cast<int>(nodes.size());
        nodes.push_back({is_folder, {}, {}});
        nodes[folder].entries[name] = node;
        ops.push_back({.kind = OpKind::kEnter,
                       .node = folder,
                       .name = name,
                       .child = node,
                       .is_folder = is_folder});
        return node;
    }
    void leave(const std::string& path) {
        const auto [folder, name] = place(path);
        ops.push_back(
            {.kind = OpKind::kLeave, .node = folder, .name = name, .child = child(folder, name)});
        nodes[folder].entries.erase(name);
    }
    void sync(const std::string& path, int node) {
        if (ignores_sync && ignores_sync(path)) return;
        ops.push_back({.kind = OpKind::kSync, .node = node});
    }

    std::shared_ptr<std::set<std::string>> locks_ = std::make_shared<std::set<std::string>>();
};

}  // namespace dslaunch::test
