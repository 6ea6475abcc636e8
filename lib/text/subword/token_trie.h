// A trie over bytes that finds the tokens with which a text begins. The children of a node are
// stored next to each other. Built once, then only read.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/subword/vocabulary.h"

namespace dslaunch::text {

// The trie of a set of tokens.
class TokenTrie {
  public:
    // If TOKENS contains a text twice, the trie keeps the last number. Empty texts are left out.
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

    // A token at the beginning of a text, and its length in bytes.
    struct Found {
        size_t length = 0;
        int32_t id = kNoToken;
    };
    // Returns the longest token that TEXT begins with; its id is kNoToken if there is none.
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
    // Returns the child of NODE for BYTE, or 0 if there is none: node 0 is the root, which is no
    // node's child.
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
