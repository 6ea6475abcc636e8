// Catch2 v2 and v3 through one include: Approx, and Contains, StartsWith, EndsWith of Catch.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
namespace Catch {
using Matchers::EndsWith, Matchers::StartsWith;
inline auto Contains(const std::string& text) {
    return Matchers::ContainsSubstring(text);
}
}  // namespace Catch
#else
#include <catch2/catch.hpp>
#endif

#include "support/places.h"
