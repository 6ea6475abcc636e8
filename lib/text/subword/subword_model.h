// The `model` of a tokenizer.json, which converts one piece of text to token numbers. Built once,
// then only read; each thread uses its own ModelScratch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_place.h"
#include "text/subword/vocabulary.h"

namespace dslaunch::text {

// Memory that is reused from piece to piece.
struct ModelScratch {
    // A token of the piece that BPE may still merge. `previous` and `next` are the indices of its
    // neighbours, or -1 if there is none.
    struct Symbol {
        int32_t id = kNoToken;
        int32_t previous = -1;
        int32_t next = -1;
        bool is_there = true;
    };
    // A merge that may be done next (BPE).
    struct Merge {
        uint64_t order = 0;  // rank, then place
        int32_t id = kNoToken;
    };
    // The best division of the piece's first bytes into tokens (Unigram). `score` is the sum of the
    // tokens' scores; `begin` and `id` belong to the last token.
    struct Node {
        double score = 0;
        int64_t begin = -1;
        int32_t id = kNoToken;
    };
    std::vector<int32_t> ids;
    std::vector<uint32_t> ends;  // the ends of the tokens in the last piece
    std::vector<Symbol> symbols;
    std::vector<Merge> heap;
    std::vector<Node> nodes;
    std::string text;

    // Returns true if a long text has made the memory too large to keep.
    [[nodiscard]] bool is_large() const {
        constexpr size_t kKeptBytesMax = size_t{16} << 20;
        return symbols.capacity() * sizeof(Symbol) + heap.capacity() * sizeof(Merge) +
                   nodes.capacity() * sizeof(Node) >
               kKeptBytesMax;
    }
};

// A model of any `type`.
class SubwordModel {
  public:
    virtual ~SubwordModel() = default;
    // Appends the tokens of PIECE to OUT. Sets `ends` of SCRATCH to the places in PIECE where the
    // tokens end; each token begins where the previous token ends. REQUIRES: PIECE is not empty. If
    // the model takes bytes, PIECE consists of bytes of UTF-8 text, otherwise of whole characters.
    // Throws Error{kInput} if the model has no token for a part of PIECE, not even an unknown
    // token.
    virtual void encode(std::string_view piece, ModelScratch& scratch,
                        std::vector<int32_t>& out) const = 0;
    // Returns all tokens of the model; the added tokens are not among them.
    [[nodiscard]] virtual const Vocabulary& vocabulary() const = 0;
    // Returns true if cutting a piece does not change its tokens. Cuts are made at each U+2581 that
    // follows another character.
    [[nodiscard]] virtual bool may_cut_words() const { return false; }
};

// The options of reading a model; only BPE uses them.
struct ModelReading {
    // If true, the pieces of a ByteLevel pre-tokenizer are raw bytes. If false, they contain one
    // character for each byte.
    bool takes_bytes = false;
};

// Reads the model at PLACE. Throws Error{kInput} that names the place in the document.
[[nodiscard]] std::unique_ptr<const SubwordModel> read_model(const JsonPlace& place,
                                                             ModelReading reading);

// Returns the `type` of the model at PLACE. Files of the first versions have no `type`; the other
// fields of the model then show its type.
[[nodiscard]] std::string model_type(const JsonPlace& place);

// Return the model at PLACE. Each function reads models of one `type`.
[[nodiscard]] std::unique_ptr<const SubwordModel> read_bpe(const JsonPlace& place,
                                                           ModelReading reading);
[[nodiscard]] std::unique_ptr<const SubwordModel> read_unigram(const JsonPlace& place);
[[nodiscard]] std::unique_ptr<const SubwordModel> read_word_piece(const JsonPlace& place);
[[nodiscard]] std::unique_ptr<const SubwordModel> read_word_level(const JsonPlace& place);

// Returns the object `vocab` at PLACE, which maps tokens to numbers.
[[nodiscard]] Vocabulary read_vocabulary(const JsonPlace& place);
// Returns true if PLACE is a string. Some documents have a value of another type there.
[[nodiscard]] bool is_text_place(const JsonPlace& place);
// Returns the numbers of "<0x00>" to "<0xFF>", with kNoToken for each one that is missing.
[[nodiscard]] std::vector<int32_t> byte_tokens(const Vocabulary& vocabulary);

}  // namespace dslaunch::text
