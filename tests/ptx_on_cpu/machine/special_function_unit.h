// A special function unit with the errors that PTX allows.
#pragma once

namespace ptx {

float approximate_exp2(float x);
float approximate_reciprocal(float x);
float approximate_quotient(float x, float y);

}  // namespace ptx
