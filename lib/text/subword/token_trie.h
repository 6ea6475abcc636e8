// The tokens that begin a text: a trie over bytes, whose nodes keep their children side by side.
// Built once, then only read.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/subword/vocabulary.h"

namespace dslaunch::text {

class TokenTrie {
  public:
    // The last one of equal texts counts. Empty texts are left out.
    explicit TokenTrie(std::vector<std::pair<std::string, int32_t>> tokens);

    // Calls VISIT(length, id) for each token that TEXT begins with, the shortest first.
    template <typename Visit>
    void for_prefixes(std::string_view text, const Visit& visit) const {
        uint32_t node = 0;
        for (size_t i = 0; i < text.size(); ++i) {
            node = child(node, static_cast<unsigned char>(text[i]));
            if (node == 0) return;
            if (nodes_[node].id != kNoToken) visit(i + 1, nodes_[node].id);
        }
    }

    struct Found {
        size_t length = 0;
        int32_t id = kNoToken;
    };
    // Returns kNoToken if no token begins TEXT.
    [[nodiscard]] Found longest(std::string_view text) const {
        Found found;
        for_prefixes(text, [&](size_t length, int32_t id) { found = {length, id}; });
        return found;
    }

  private:
    struct Node {
        uint32_t children_begin = 0;
        uint32_t children_count = 0;
        int32_t id = kNoToken;
    };
    // Returns 0 if there is no child: the root is nobody's child.
    [[nodiscard]] uint32_t child(uint32_t node, unsigned char byte) const {
        if (node == 0) return root_[byte];
        const Node& parent = nodes_[node];
        const unsigned char* labels = labels_.data() + parent.children_begin;
        if (parent.children_count == 0) return 0;
        const void* at = std::memchr(labels, byte, parent.children_count);
        if (!at) return 0;
        return parent.children_begin +
               static_cast<uint32_t>(static_cast<const unsigned char*>(at) - labels);
    }

    std::vector<Node> nodes_;
    std::vector<unsigned char> labels_;  // by node
    std::vector<uint32_t> root_ = std::vector<uint32_t>(256);
};

}  // namespace dslaunch::text
