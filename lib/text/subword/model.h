// The `model` of a tokenizer.json, which turns one piece of text into the numbers of tokens. Built
// once, then only read; each thread brings its own ModelScratch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_place.h"
#include "text/subword/vocabulary.h"

namespace dslaunch::text {

// Memory that is used again from piece to piece.
struct ModelScratch {
    struct Symbol {
        int32_t id = kNoToken;
        int32_t previous = -1;
        int32_t next = -1;
        bool is_there = true;
    };
    struct Merge {
        uint64_t order = 0;  // rank, then place
        int32_t id = kNoToken;
    };
    struct Node {
        double score = 0;
        int64_t begin = -1;
        int32_t id = kNoToken;
    };
    std::vector<int32_t> ids;
    std::vector<uint32_t> ends;  // the end of each of the last piece's tokens in it
    std::vector<Symbol> symbols;
    std::vector<Merge> heap;
    std::vector<Node> nodes;
    std::string text;

    // Returns true if a long text has made it so large that it is not worth keeping.
    [[nodiscard]] bool is_large() const {
        constexpr size_t kKeptBytesMax = size_t{16} << 20;
        return symbols.capacity() * sizeof(Symbol) + heap.capacity() * sizeof(Merge) +
                   nodes.capacity() * sizeof(Node) >
               kKeptBytesMax;
    }
};

class Model {
  public:
    virtual ~Model() = default;
    // Appends the tokens of PIECE to OUT, and puts into `ends` of SCRATCH the place in PIECE where
    // each ends: one begins where the last one ends. REQUIRES: not empty; the bytes of UTF-8 text
    // where takes_bytes(), else whole characters. Throws Error{kInput} if the model has no token
    // for a part of it, not even an unknown one.
    virtual void encode(std::string_view piece, ModelScratch& scratch,
                        std::vector<int32_t>& out) const = 0;
    [[nodiscard]] virtual const Vocabulary& vocabulary() const = 0;
    // Returns true if a piece has the same tokens as its parts, cut at each U+2581 that follows
    // another character.
    [[nodiscard]] virtual bool may_cut_words() const { return false; }
};

struct ModelReading {
    // Pieces come as the bytes that a ByteLevel pre-tokenizer would write as characters.
    bool takes_bytes = false;
};

// Reads the model at PLACE. Throws Error{kInput} that names the place in the document.
[[nodiscard]] std::unique_ptr<const Model> read_model(const JsonPlace& place, ModelReading reading);

// Returns the `type` of the model of PLACE, also of files of the first versions, which lack it.
[[nodiscard]] std::string model_type(const JsonPlace& place);

// Each reads one `type`.
[[nodiscard]] std::unique_ptr<const Model> read_bpe(const JsonPlace& place, ModelReading reading);
[[nodiscard]] std::unique_ptr<const Model> read_unigram(const JsonPlace& place);
[[nodiscard]] std::unique_ptr<const Model> read_word_piece(const JsonPlace& place);
[[nodiscard]] std::unique_ptr<const Model> read_word_level(const JsonPlace& place);

// Returns the object `vocab` of PLACE: token -> number.
[[nodiscard]] Vocabulary read_vocabulary(const JsonPlace& place);
// Returns true if PLACE is a text, in documents where something else may stand there too.
[[nodiscard]] bool is_text_place(const JsonPlace& place);
// Returns the numbers of "<0x00>" to "<0xFF>"; kNoToken for each that is missing.
[[nodiscard]] std::vector<int32_t> byte_tokens(const Vocabulary& vocabulary);

}  // namespace dslaunch::text
