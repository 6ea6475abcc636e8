// The counts of a service as Prometheus reads them. Pure.
#pragma once

#include <string>

#include "server/text_service.h"

namespace dslaunch::server {

// Exposition format 0.0.4.
[[nodiscard]] std::string metrics_text(const ServiceCounts& counts);

}  // namespace dslaunch::server
