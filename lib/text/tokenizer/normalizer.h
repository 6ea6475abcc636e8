// The `normalizer` of a tokenizer.json, which changes text before it is cut. Built once, then only
// read: any threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/json_place.h"
#include "text/unicode/aligned_text.h"

namespace dslaunch::text {

// A text that normalizers are changing.
struct NormalText : AlignedText {
    size_t bytes_max = 0;  // of `text`, however many steps rewrite it

    // Replaces the text and its places by WRITTEN, and keeps bytes_max.
    void become(AlignedText written) { AlignedText::operator=(std::move(written)); }
};

// One step of a normalizer.
class Normalizer {
  public:
    virtual ~Normalizer() = default;
    // Normalizes the text. REQUIRES: the text is valid UTF-8, and it stays valid. Throws
    // Error{kInput} if finding the matches takes too long, or if the text grows too large.
    virtual void apply(NormalText& normal) const = 0;
};

// Appends the step at PLACE, or the steps of a Sequence in order. Throws Error{kInput} that names
// the place of a wrong or unknown part.
void read_normalizers(const JsonPlace& place,
                      std::vector<std::unique_ptr<const Normalizer>>& steps);

// Returns the normalizer for sentencepiece's character map, which is in base64. Throws
// Error{kInput} that names PLACE.
[[nodiscard]] std::unique_ptr<const Normalizer> read_precompiled(const JsonPlace& place);

// Returns TEXT without changes as a NormalText. TEXT begins at byte BEGIN of the original text.
[[nodiscard]] NormalText normal_text(std::string_view text, uint32_t begin, size_t bytes_max);

}  // namespace dslaunch::text
