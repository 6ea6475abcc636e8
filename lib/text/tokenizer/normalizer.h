// The `normalizer` of a tokenizer.json, which changes text before it is cut. Built
// once, then only read: any threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/json_place.h"
#include "text/unicode/aligned_text.h"

namespace dslaunch::text {

// Text on its way through a normalizer.
struct NormalText : AlignedText {
    size_t bytes_max = 0;  // of `text`, however many steps write it

    void become(AlignedText written) { AlignedText::operator=(std::move(written)); }
};

class Normalizer {
  public:
    virtual ~Normalizer() = default;
    // Normalizes the text. REQUIRES: valid UTF-8, which it stays. Throws Error{kInput} as
    // Pattern::find_all and require_room do.
    virtual void apply(NormalText& normal) const = 0;
};

// Appends the steps of PLACE, a Sequence's one after the other. Throws Error{kInput} that names the
// place of a wrong or unknown part.
void read_normalizers(const JsonPlace& place,
                      std::vector<std::unique_ptr<const Normalizer>>& steps);

// Returns sentencepiece's character map, in base64. Throws Error{kInput} that names PLACE.
[[nodiscard]] std::unique_ptr<const Normalizer> read_precompiled(const JsonPlace& place);

// Returns TEXT as it is; it begins at BEGIN of the original.
[[nodiscard]] NormalText normal_text(std::string_view text, uint32_t begin, size_t bytes_max);

}  // namespace dslaunch::text
