#include "text/subword/token_trie.h"

#include <algorithm>

namespace dslaunch::text {
namespace {

// Tokens [begin, end), which share their first DEPTH bytes, and the number of their node.
struct Open {
    size_t begin;
    size_t end;
    size_t depth;
    uint32_t node;
};

}  // namespace

TokenTrie::TokenTrie(std::vector<std::pair<std::string, int32_t>> tokens) {
    std::stable_sort(tokens.begin(), tokens.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    nodes_.resize(1);
    labels_.resize(1);
    std::vector<Open> open = {{0, tokens.size(), 0, 0}};
    // Builds the trie breadth first, so that the children of a node are next to each other.
    for (size_t next = 0; next < open.size(); ++next) {
        const auto [first, end, depth, node] = open[next];
        size_t begin = first;
        for (; begin < end && tokens[begin].first.size() == depth; ++begin)
            if (depth > 0) nodes_[node].id = tokens[begin].second;
        nodes_[node].children_begin = static_cast<uint32_t>(nodes_.size());
        while (begin < end) {
            const char label = tokens[begin].first[depth];
            size_t stop = begin;
            while (stop < end && tokens[stop].first[depth] == label) ++stop;
            const auto child = static_cast<uint32_t>(nodes_.size());
            if (node == 0) root_[static_cast<unsigned char>(label)] = child;
            nodes_.emplace_back();
            labels_.push_back(static_cast<unsigned char>(label));
            ++nodes_[node].children_count;
            open.push_back({begin, stop, depth + 1, child});
            begin = stop;
        }
    }
}

}  // namespace dslaunch::text
