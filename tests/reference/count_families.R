# Reference values of the Double Binomial, the Generalised Poisson and the Conway-Maxwell-Poisson from R packages:
# Rscript count_families.R > count_families.csv
suppressMessages({library(rmutil); library(VGAM)})
options(digits = 15)
cat("family,total,mu,dispersion,y,log_pmf\n")
put <- function(family, total, mu, dispersion, y, value)
  cat(paste(family, total, format(mu, digits = 15), format(dispersion, digits = 15), y, format(value, digits = 15),
            sep = ","), sep = "\n")
for (n in c(1, 7, 12, 60, 400)) for (p in c(0.04, 0.5, 0.83)) for (s in c(0.2, 1, 1.7, 6)) {
  y <- unique(pmin(n, pmax(0, round(n * p + c(-4, 0, 2)))))
  # rmutil: m is the probability and s is gamma.
  put("double_binomial", n, n * p, s, y, ddoublebinom(y, n, p, s, log = TRUE))
}
for (mu in c(0.3, 4, 55)) for (alpha in c(0.05, 0.4, 2)) {
  y <- unique(pmax(0, round(mu * c(0, 0.7, 1, 2.5))))
  put("generalized_poisson", 0, mu, alpha, y, dgenpois1(y, mu, (1 + alpha)^2, log = TRUE))
}
