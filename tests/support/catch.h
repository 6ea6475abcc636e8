// Includes Catch2 v2 (Debian 12) or v3 (Ubuntu 24.04). Write Catch::Approx as Approx, and
// Catch::Contains; the name of a test is a sentence.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
namespace Catch {
inline auto Contains(const std::string& text) {
    return Matchers::ContainsSubstring(text);
}
}  // namespace Catch
#else
#include <catch2/catch.hpp>
#endif

#include "support/places.h"
