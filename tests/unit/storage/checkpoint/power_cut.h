// The states of a disk after a power cut, by the rules that file systems promise (after ALICE and
// CrashMonkey). Synced data is there. Every other change may be there or not: each change of a
// folder, each file's length and each block of its data, independently and in any order. A block
// may also be rubbish. A rename or an exchange of names happens as a whole or not at all.
#pragma once

#include <random>

#include "memory_tree.h"

namespace dslaunch::test {

struct CutRules {
    int percent_kept = 50;     // percentage of unsynced changes that are kept
    size_t block_bytes = 512;  // data is torn at multiples of this
    bool rubbish = false;      // a lost block contains other bits instead of zeros
};

class PowerCut {
  public:
    PowerCut(const std::vector<Op>& ops, size_t prefix, const CutRules& rules, uint64_t seed)
        : ops_(ops), prefix_(prefix), rules_(rules), random_(seed) {}

    // Returns the nodes that a tree finds after the cut.
    std::vector<Node> nodes() {
        std::vector<bool> durable(prefix_);
        std::set<int> synced;
        for (size_t i = prefix_; i > 0; --i) {
            if (ops_[i - 1].kind == OpKind::kSync) synced.insert(ops_[i - 1].node);
            durable[i - 1] = synced.count(ops_[i - 1].node) > 0;
        }
        for (size_t i = 0; i < prefix_; ++i) apply(ops_[i], durable[i]);
        for (const auto& [node, bytes] : lengths_) at(node).data.resize(bytes);
        return std::move(nodes_);
    }

  private:
    bool kept() { return static_cast<int>(random_() % 100) < rules_.percent_kept; }
    Node& at(int node) {
        if (nodes_.size() <= static_cast<size_t>(node))
            nodes_.resize(static_cast<size_t>(node) + 1);
        return nodes_[node];
    }

    void apply(const Op& op, bool durable) {
        if (op.kind == OpKind::kEnter) at(op.child).is_folder = op.is_folder;
        switch (op.kind) {
            case OpKind::kSync:
                return;
            case OpKind::kSize:
                lengths_[op.node] = durable || kept()
                                        ? static_cast<size_t>(op.offset)
                                        : random_() % (static_cast<size_t>(op.offset) + 1);
                return;
            case OpKind::kWrite:
                return write(op, durable);
            default:
                break;
        }
        if (!durable && !kept()) return;
        auto& entries = at(op.node).entries;
        const auto drop = [&](const std::string& name, int child) {
            const auto found = entries.find(name);
            if (found != entries.end() && found->second == child) entries.erase(found);
        };
        if (op.kind == OpKind::kEnter) entries[op.name] = op.child;
        if (op.kind == OpKind::kLeave || op.kind == OpKind::kRename) drop(op.name, op.child);
        if (op.kind == OpKind::kRename) entries[op.other] = op.child;
        if (op.kind == OpKind::kExchange) {
            entries[op.name] = op.other_child;
            entries[op.other] = op.child;
        }
    }

    void write(const Op& op, bool durable) {
        std::string& data = at(op.node).data;
        const auto begin = static_cast<size_t>(op.offset);
        if (data.size() < begin + op.data.size()) data.resize(begin + op.data.size());
        for (size_t i = 0; i < op.data.size();) {
            const size_t block = (begin + i) / rules_.block_bytes;
            const size_t end = std::min(op.data.size(), (block + 1) * rules_.block_bytes - begin);
            if (durable || kept()) {
                data.replace(begin + i, end - i, op.data, i, end - i);
            } else if (rules_.rubbish) {
                for (size_t j = i; j < end; ++j) data[begin + j] = static_cast<char>(random_());
            }
            i = end;
        }
    }

    const std::vector<Op>& ops_;
    size_t prefix_;
    CutRules rules_;
    std::mt19937_64 random_;
    std::vector<Node> nodes_{Node{true, {}, {}}};
    std::map<int, size_t> lengths_;
};

}  // namespace dslaunch::test
