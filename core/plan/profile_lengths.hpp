// How much longer than others a sample takes, by its length, where a profile has measured several.
// Pure functions.
#pragma once

#include "core/plan/profile.hpp"

namespace pipewright {

/// How many times as long as one of the profile's usual length a sample of `length` takes: F and B
/// of all layers, on the line between the two measured lengths around it. Throws InputError where
/// the profile has no other length, or `length` lies outside of those that it has.
double length_scale(const Profile& profile, int length);

}  // namespace pipewright
