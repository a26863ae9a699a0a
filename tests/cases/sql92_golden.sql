/* SQL of typical expressions, as filtering.sql92 writes it for the dialects of sqlglot. */

-- spark: region = 'x' AND price > 50.0
properties['region'] IS NOT DISTINCT FROM 'x' AND COALESCE(TRY_CAST(properties['price'] AS DOUBLE) > 50.0D AND (TRY_CAST(properties['price'] AS DOUBLE) < DOUBLE('Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN'), FALSE)

-- spark: region = 'cn-hangzhou'
properties['region'] IS NOT DISTINCT FROM 'cn-hangzhou'

-- spark: region <> 'x'
COALESCE(properties['region'] <> 'x', FALSE)

-- spark: region IN ('eu-west-1', 'eu-west-2')
COALESCE(properties['region'] IN ('eu-west-1', 'eu-west-2'), FALSE)

-- spark: region NOT IN ('eu-west-1', 'eu-west-2')
COALESCE(NOT properties['region'] IN ('eu-west-1', 'eu-west-2'), FALSE)

-- spark: region IS NULL
properties['region'] IS NULL

-- spark: region IS NOT NULL AND level = 'gold'
properties['level'] IS NOT DISTINCT FROM 'gold' AND properties['region'] IS NOT NULL

-- spark: price > 50
COALESCE(COALESCE(TRY_CAST(properties['price'] AS INT), FROM_CSV(REGEXP_SUBSTR(properties['price'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) >= 51 AND NOT properties['price'] RLIKE '[^0-9+٠-꯹０-９-]', FALSE)

-- spark: price >= 50.0
COALESCE(TRY_CAST(properties['price'] AS DOUBLE) >= 50.0D AND (TRY_CAST(properties['price'] AS DOUBLE) < DOUBLE('Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN'), FALSE)

-- spark: price < 50.5
COALESCE(TRY_CAST(properties['price'] AS DOUBLE) < 50.5D AND (TRY_CAST(properties['price'] AS DOUBLE) > DOUBLE('-Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN'), FALSE)

-- spark: price = 50.0
COALESCE(TRY_CAST(properties['price'] AS DOUBLE) = 50.0D, FALSE)

-- spark: price <> 50.0
COALESCE(TRY_CAST(properties['price'] AS DOUBLE) <> 50.0D AND properties['price'] RLIKE '^[^nN]*$|Infinity|NaN', FALSE)

-- spark: price BETWEEN 811.63 AND 1086.54
COALESCE(TRY_CAST(properties['price'] AS DOUBLE) BETWEEN 811.63D AND 1086.54D, FALSE)

-- spark: price NOT BETWEEN 10.0 AND 20.0
COALESCE((TRY_CAST(properties['price'] AS DOUBLE) < 10.0D AND (TRY_CAST(properties['price'] AS DOUBLE) > DOUBLE('-Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN')) OR (TRY_CAST(properties['price'] AS DOUBLE) > 20.0D AND (TRY_CAST(properties['price'] AS DOUBLE) < DOUBLE('Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN')), FALSE)

-- spark: qty = 5
COALESCE(COALESCE(TRY_CAST(properties['qty'] AS INT), FROM_CSV(REGEXP_SUBSTR(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) = 5 AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]', FALSE)

-- spark: qty <> 5
COALESCE(COALESCE(TRY_CAST(properties['qty'] AS INT), FROM_CSV(REGEXP_SUBSTR(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) <> 5 AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]', FALSE)

-- spark: qty <> 5 AND qty <> 6
COALESCE(NOT COALESCE(TRY_CAST(properties['qty'] AS INT), FROM_CSV(REGEXP_SUBSTR(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) IN (5, 6) AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]', FALSE)

-- spark: qty BETWEEN 394 AND 400
COALESCE(COALESCE(TRY_CAST(properties['qty'] AS INT), FROM_CSV(REGEXP_SUBSTR(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) BETWEEN 394 AND 400 AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]', FALSE)

-- spark: qty = 1 OR qty = 2 OR qty = 3
COALESCE(COALESCE(TRY_CAST(properties['qty'] AS INT), FROM_CSV(REGEXP_SUBSTR(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) IN (1, 2, 3) AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]', FALSE)

-- spark: userId > 4294967296
COALESCE(COALESCE(TRY_CAST(properties['userId'] AS BIGINT), FROM_CSV(REGEXP_SUBSTR(properties['userId'], '^[0-9+٠-꯹０-９-]+$'), 'v BIGINT').v) >= 4294967297L AND NOT properties['userId'] RLIKE '[^0-9+٠-꯹０-９-]', FALSE)

-- spark: flag = TRUE
LOWER(properties['flag']) IS NOT DISTINCT FROM 'true'

-- spark: flag = FALSE
COALESCE(LOWER(properties['flag']) <> 'true', FALSE)

-- spark: TAGS CONTAINS 'Paid'
COALESCE(CONTAINS(properties['TAGS'], 'Paid'), FALSE)

-- spark: TAGS NOT CONTAINS 'Paid'
COALESCE(NOT CONTAINS(properties['TAGS'], 'Paid'), FALSE)

-- spark: orderId STARTSWITH 'EU-' OR orderId ENDSWITH '-X'
COALESCE(ENDSWITH(properties['orderId'], '-X') OR STARTSWITH(properties['orderId'], 'EU-'), FALSE)

-- spark: NOT (orderId STARTSWITH 'EU-')
NOT (COALESCE(STARTSWITH(properties['orderId'], 'EU-'), FALSE))

-- spark: a = b
COALESCE(properties['a'] = properties['b'] OR (properties['a'] IS NULL AND properties['b'] IS NULL), FALSE)

-- spark: a <> b
(properties['a'] IS NOT NULL AND properties['b'] IS NULL) OR (properties['a'] IS NOT NULL AND properties['b'] IS NOT NULL AND NOT (COALESCE(properties['a'] = properties['b'], FALSE)))

-- spark: a > b
COALESCE((TRY_CAST(properties['a'] AS DOUBLE) > TRY_CAST(properties['b'] AS DOUBLE) OR (TRY_CAST(properties['a'] AS DOUBLE) = TRY_CAST(properties['b'] AS DOUBLE) AND STARTSWITH(CAST(TRY_CAST(properties['b'] AS DOUBLE) AS STRING), '-') AND NOT STARTSWITH(CAST(TRY_CAST(properties['a'] AS DOUBLE) AS STRING), '-'))) AND properties['a'] RLIKE '^[^nN]*$|Infinity|NaN' AND properties['b'] RLIKE '^[^nN]*$|Infinity|NaN', FALSE)

-- spark: a <= b
COALESCE(TRY_CAST(properties['a'] AS DOUBLE) <= TRY_CAST(properties['b'] AS DOUBLE) AND NOT (TRY_CAST(properties['a'] AS DOUBLE) = TRY_CAST(properties['b'] AS DOUBLE) AND STARTSWITH(CAST(TRY_CAST(properties['b'] AS DOUBLE) AS STRING), '-') AND NOT STARTSWITH(CAST(TRY_CAST(properties['a'] AS DOUBLE) AS STRING), '-')) AND properties['a'] RLIKE '^[^nN]*$|Infinity|NaN' AND properties['b'] RLIKE '^[^nN]*$|Infinity|NaN', FALSE)

-- spark: 5 <> a
COALESCE(properties['a'] IS NULL OR (COALESCE(TRY_CAST(properties['a'] AS INT), FROM_CSV(REGEXP_SUBSTR(properties['a'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) <> 5 AND NOT properties['a'] RLIKE '[^0-9+٠-꯹０-９-]'), FALSE)

-- spark: 'x' <> a
NOT (properties['a'] IS NOT DISTINCT FROM 'x')

-- spark: price > 50.0 OR region = 'x'
COALESCE((TRY_CAST(properties['price'] AS DOUBLE) > 50.0D AND (TRY_CAST(properties['price'] AS DOUBLE) < DOUBLE('Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN')) OR (properties['region'] IS NOT DISTINCT FROM 'x' AND (properties['price'] IS NULL OR (TRY_CAST(properties['price'] AS DOUBLE) IS NOT NULL AND properties['price'] RLIKE '^[^nN]*$|Infinity|NaN'))), FALSE)

-- spark: price > 50.0 OR price < 10.0
COALESCE((TRY_CAST(properties['price'] AS DOUBLE) < 10.0D AND (TRY_CAST(properties['price'] AS DOUBLE) > DOUBLE('-Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN')) OR (TRY_CAST(properties['price'] AS DOUBLE) > 50.0D AND (TRY_CAST(properties['price'] AS DOUBLE) < DOUBLE('Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN')), FALSE)

-- spark: qty > 5 OR region = 'x'
COALESCE((COALESCE(TRY_CAST(properties['qty'] AS INT), FROM_CSV(REGEXP_SUBSTR(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) >= 6 AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]') OR (properties['region'] IS NOT DISTINCT FROM 'x' AND (properties['qty'] IS NULL OR (COALESCE(TRY_CAST(properties['qty'] AS INT), FROM_CSV(REGEXP_SUBSTR(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) IS NOT NULL AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]'))), FALSE)

-- spark: region = 'x' OR qty > 5
COALESCE(properties['region'] IS NOT DISTINCT FROM 'x' OR (COALESCE(TRY_CAST(properties['qty'] AS INT), FROM_CSV(REGEXP_SUBSTR(properties['qty'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) >= 6 AND NOT properties['qty'] RLIKE '[^0-9+٠-꯹０-９-]'), FALSE)

-- spark: (region = 'x' OR region = 'y') AND (level = 'gold' OR price > 50.0)
COALESCE(properties['region'] IN ('x', 'y') AND (properties['level'] IS NOT DISTINCT FROM 'gold' OR (TRY_CAST(properties['price'] AS DOUBLE) > 50.0D AND (TRY_CAST(properties['price'] AS DOUBLE) < DOUBLE('Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN'))), FALSE)

-- spark: NOT (region = 'x' AND level = 'gold')
COALESCE(properties['level'] <> 'gold' OR properties['region'] <> 'x', FALSE)

-- spark: NOT (price > 50.0)
COALESCE(TRY_CAST(properties['price'] AS DOUBLE) <= 50.0D AND (TRY_CAST(properties['price'] AS DOUBLE) > DOUBLE('-Infinity') OR properties['price'] RLIKE '^[^nN]*$|Infinity|NaN'), FALSE)

-- spark: note = 'it''s \ ${x}'
properties['note'] IS NOT DISTINCT FROM CONCAT('it', CHR(39), 's ', CHR(92), ' ', CHR(36), '{x}')

-- spark: NOT region = 'x'
FALSE

-- spark: region
FALSE

-- spark: TRUE
TRUE

-- spark: NULL
FALSE

-- databricks: price > 50.0 AND region IN ('hangzhou')
properties['region'] IS NOT DISTINCT FROM 'hangzhou' AND COALESCE(TRY_CAST(properties['price'] AS DOUBLE) > 50.0D AND (TRY_CAST(properties['price'] AS DOUBLE) < DOUBLE('Infinity') OR REGEXP_LIKE(properties['price'], '^[^nN]*$|Infinity|NaN')), FALSE)

-- databricks: price > 100
COALESCE(COALESCE(TRY_CAST(properties['price'] AS INT), FROM_CSV(REGEXP_SUBSTR(properties['price'], '^[0-9+٠-꯹０-９-]+$'), 'v INT').v) >= 101 AND NOT REGEXP_LIKE(properties['price'], '[^0-9+٠-꯹０-９-]'), FALSE)

-- databricks: userId <> 4294967296
COALESCE(COALESCE(TRY_CAST(properties['userId'] AS BIGINT), FROM_CSV(REGEXP_SUBSTR(properties['userId'], '^[0-9+٠-꯹０-９-]+$'), 'v BIGINT').v) <> 4294967296L AND NOT REGEXP_LIKE(properties['userId'], '[^0-9+٠-꯹０-９-]'), FALSE)

-- databricks: a >= b
COALESCE(TRY_CAST(properties['a'] AS DOUBLE) >= TRY_CAST(properties['b'] AS DOUBLE) AND NOT (TRY_CAST(properties['a'] AS DOUBLE) = TRY_CAST(properties['b'] AS DOUBLE) AND STARTSWITH(CAST(TRY_CAST(properties['a'] AS DOUBLE) AS STRING), '-') AND NOT STARTSWITH(CAST(TRY_CAST(properties['b'] AS DOUBLE) AS STRING), '-')) AND REGEXP_LIKE(properties['a'], '^[^nN]*$|Infinity|NaN') AND REGEXP_LIKE(properties['b'], '^[^nN]*$|Infinity|NaN'), FALSE)

-- databricks: TAGS CONTAINS 'it''s \' OR orderId NOT ENDSWITH '-X'
COALESCE(CONTAINS(properties['TAGS'], CONCAT('it', CHR(39), 's ', CHR(92))) OR NOT ENDSWITH(properties['orderId'], '-X'), FALSE)

-- duckdb: price > 50.0 AND region IN ('hangzhou')
properties['region'] IS NOT DISTINCT FROM 'hangzhou' AND COALESCE(CAST(NULLIF(REGEXP_EXTRACT(properties['price'], '^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\x00- ]*$', 1), '') AS DOUBLE) > 50.0e0, FALSE)

-- duckdb: price > 100
COALESCE(CASE WHEN REGEXP_MATCHES(properties['price'], '^[+-]?[0-9]+$') THEN TRY_CAST(properties['price'] AS INT) WHEN REGEXP_MATCHES(properties['price'], '^[+-]?\p{Nd}+$') THEN CAST(properties['price'] AS INT) END >= 101, FALSE)

-- duckdb: userId <> 4294967296
COALESCE(CASE WHEN REGEXP_MATCHES(properties['userId'], '^[+-]?[0-9]+$') THEN TRY_CAST(properties['userId'] AS BIGINT) WHEN REGEXP_MATCHES(properties['userId'], '^[+-]?\p{Nd}+$') THEN CAST(properties['userId'] AS BIGINT) END <> 4294967296, FALSE)

-- duckdb: a >= b
COALESCE(CAST(NULLIF(REGEXP_EXTRACT(properties['a'], '^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\x00- ]*$', 1), '') AS DOUBLE) >= CAST(NULLIF(REGEXP_EXTRACT(properties['b'], '^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\x00- ]*$', 1), '') AS DOUBLE) AND NOT (CAST(NULLIF(REGEXP_EXTRACT(properties['a'], '^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\x00- ]*$', 1), '') AS DOUBLE) = CAST(NULLIF(REGEXP_EXTRACT(properties['b'], '^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\x00- ]*$', 1), '') AS DOUBLE) AND STARTS_WITH(CAST(CAST(NULLIF(REGEXP_EXTRACT(properties['a'], '^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\x00- ]*$', 1), '') AS DOUBLE) AS TEXT), '-') AND NOT STARTS_WITH(CAST(CAST(NULLIF(REGEXP_EXTRACT(properties['b'], '^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\x00- ]*$', 1), '') AS DOUBLE) AS TEXT), '-')), FALSE)

-- duckdb: TAGS CONTAINS 'it''s \' OR orderId NOT ENDSWITH '-X'
COALESCE(CONTAINS(properties['TAGS'], 'it''s ' || CHR(92)) OR NOT ENDS_WITH(properties['orderId'], '-X'), FALSE)

-- datafusion: price > 50.0 AND region IN ('hangzhou')
(properties['region'] IS NOT DISTINCT FROM 'hangzhou') AND COALESCE(CAST(REGEXP_MATCH(REPLACE(properties['price'], '-NaN', 'NaN'), '^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\x00- ]*$')[1] AS DOUBLE) > 50.0, FALSE)

-- datafusion: price > 100
COALESCE(CASE WHEN REGEXP_LIKE(properties['price'], '^[+-]?[0-9]+$') THEN TRY_CAST(properties['price'] AS INT) WHEN REGEXP_LIKE(properties['price'], '^[+-]?\p{Nd}+$') THEN CAST(properties['price'] AS INT) END >= 101, FALSE)

-- datafusion: userId <> 4294967296
COALESCE(CASE WHEN REGEXP_LIKE(properties['userId'], '^[+-]?[0-9]+$') THEN TRY_CAST(properties['userId'] AS BIGINT) WHEN REGEXP_LIKE(properties['userId'], '^[+-]?\p{Nd}+$') THEN CAST(properties['userId'] AS BIGINT) END <> 4294967296, FALSE)

-- datafusion: a >= b
COALESCE(CAST(REGEXP_MATCH(REPLACE(properties['a'], '-NaN', 'NaN'), '^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\x00- ]*$')[1] AS DOUBLE) >= CAST(REGEXP_MATCH(REPLACE(properties['b'], '-NaN', 'NaN'), '^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\x00- ]*$')[1] AS DOUBLE) AND NOT (CAST(REGEXP_MATCH(REPLACE(properties['a'], '-NaN', 'NaN'), '^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\x00- ]*$')[1] AS DOUBLE) = CAST(REGEXP_MATCH(REPLACE(properties['b'], '-NaN', 'NaN'), '^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\x00- ]*$')[1] AS DOUBLE) AND STARTS_WITH(CAST(CAST(REGEXP_MATCH(REPLACE(properties['a'], '-NaN', 'NaN'), '^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\x00- ]*$')[1] AS DOUBLE) AS TEXT), '-') AND NOT STARTS_WITH(CAST(CAST(REGEXP_MATCH(REPLACE(properties['b'], '-NaN', 'NaN'), '^[\x00- ]*([+-]?(NaN\b|Infinity\b|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\x00- ]*$')[1] AS DOUBLE) AS TEXT), '-')), FALSE)

-- datafusion: TAGS CONTAINS 'it''s \' OR orderId NOT ENDSWITH '-X'
COALESCE(CONTAINS(properties['TAGS'], CONCAT('it''s ', CHR(92))) OR NOT ENDS_WITH(properties['orderId'], '-X'), FALSE)

-- trino: price > 50.0 AND region IN ('hangzhou')
ELEMENT_AT(properties, 'region') IS NOT DISTINCT FROM 'hangzhou' AND COALESCE(TRY_CAST(ELEMENT_AT(properties, 'price') AS DOUBLE) > 50.0e0 OR IS_NAN(TRY_CAST(ELEMENT_AT(properties, 'price') AS DOUBLE)), FALSE)

-- trino: price > 100
COALESCE(CASE WHEN REGEXP_LIKE(ELEMENT_AT(properties, 'price'), '^[+-]?\p{Nd}+\z') THEN TRY_CAST(ELEMENT_AT(properties, 'price') AS INTEGER) END >= 101, FALSE)

-- trino: userId <> 4294967296
COALESCE(CASE WHEN REGEXP_LIKE(ELEMENT_AT(properties, 'userId'), '^[+-]?\p{Nd}+\z') THEN TRY_CAST(ELEMENT_AT(properties, 'userId') AS BIGINT) END <> 4294967296, FALSE)

-- trino: a >= b
COALESCE((TRY_CAST(ELEMENT_AT(properties, 'a') AS DOUBLE) >= TRY_CAST(ELEMENT_AT(properties, 'b') AS DOUBLE) OR IS_NAN(TRY_CAST(ELEMENT_AT(properties, 'a') AS DOUBLE))) AND NOT (TRY_CAST(ELEMENT_AT(properties, 'a') AS DOUBLE) = TRY_CAST(ELEMENT_AT(properties, 'b') AS DOUBLE) AND STARTS_WITH(CAST(TRY_CAST(ELEMENT_AT(properties, 'a') AS DOUBLE) AS VARCHAR), '-') AND NOT STARTS_WITH(CAST(TRY_CAST(ELEMENT_AT(properties, 'b') AS DOUBLE) AS VARCHAR), '-')), FALSE)

-- trino: TAGS CONTAINS 'it''s \' OR orderId NOT ENDSWITH '-X'
COALESCE(STRPOS(ELEMENT_AT(properties, 'TAGS'), CONCAT('it''s ', CHR(92))) > 0 OR NOT STARTS_WITH(REVERSE(ELEMENT_AT(properties, 'orderId')), 'X-'), FALSE)

-- postgres: price > 50.0 AND region IN ('hangzhou')
properties ->> 'region' IS NOT DISTINCT FROM 'hangzhou' AND COALESCE(CAST(SUBSTRING(properties ->> 'price', '^[\u0001- ]*([+-]?(NaN\y|Infinity\y|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\u0001- ]*$') AS DOUBLE PRECISION) > 50.0, FALSE)

-- postgres: price > 100
COALESCE(CASE WHEN properties ->> 'price' ~ '^[+-]?[0-9٠-٩۰-۹߀-߉०-९০-৯੦-੯૦-૯୦-୯௦-௯౦-౯೦-೯൦-൯෦-෯๐-๙໐-໙༠-༩၀-၉႐-႙០-៩᠐-᠙᥆-᥏᧐-᧙᪀-᪉᪐-᪙᭐-᭙᮰-᮹᱀-᱉᱐-᱙꘠-꘩꣐-꣙꤀-꤉꧐-꧙꧰-꧹꩐-꩙꯰-꯹０-９]+$' THEN CASE WHEN CAST(properties ->> 'price' AS DECIMAL) BETWEEN -2147483648 AND 2147483647 THEN CAST(properties ->> 'price' AS INT) END END >= 101, FALSE)

-- postgres: userId <> 4294967296
COALESCE(CASE WHEN properties ->> 'userId' ~ '^[+-]?[0-9٠-٩۰-۹߀-߉०-९০-৯੦-੯૦-૯୦-୯௦-௯౦-౯೦-೯൦-൯෦-෯๐-๙໐-໙༠-༩၀-၉႐-႙០-៩᠐-᠙᥆-᥏᧐-᧙᪀-᪉᪐-᪙᭐-᭙᮰-᮹᱀-᱉᱐-᱙꘠-꘩꣐-꣙꤀-꤉꧐-꧙꧰-꧹꩐-꩙꯰-꯹０-９]+$' THEN CASE WHEN CAST(properties ->> 'userId' AS DECIMAL) BETWEEN -9223372036854775808 AND 9223372036854775807 THEN CAST(properties ->> 'userId' AS BIGINT) END END <> 4294967296, FALSE)

-- postgres: a >= b
COALESCE(CAST(SUBSTRING(properties ->> 'a', '^[\u0001- ]*([+-]?(NaN\y|Infinity\y|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\u0001- ]*$') AS DOUBLE PRECISION) >= CAST(SUBSTRING(properties ->> 'b', '^[\u0001- ]*([+-]?(NaN\y|Infinity\y|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\u0001- ]*$') AS DOUBLE PRECISION) AND NOT (CAST(SUBSTRING(properties ->> 'a', '^[\u0001- ]*([+-]?(NaN\y|Infinity\y|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\u0001- ]*$') AS DOUBLE PRECISION) = CAST(SUBSTRING(properties ->> 'b', '^[\u0001- ]*([+-]?(NaN\y|Infinity\y|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\u0001- ]*$') AS DOUBLE PRECISION) AND STARTS_WITH(CAST(CAST(SUBSTRING(properties ->> 'a', '^[\u0001- ]*([+-]?(NaN\y|Infinity\y|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\u0001- ]*$') AS DOUBLE PRECISION) AS TEXT), '-') AND NOT STARTS_WITH(CAST(CAST(SUBSTRING(properties ->> 'b', '^[\u0001- ]*([+-]?(NaN\y|Infinity\y|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|0[xX].+[pP].+))[dDfF]?[\u0001- ]*$') AS DOUBLE PRECISION) AS TEXT), '-')), FALSE)

-- postgres: TAGS CONTAINS 'it''s \' OR orderId NOT ENDSWITH '-X'
COALESCE(POSITION('it''s ' || CHR(92) IN properties ->> 'TAGS') > 0 OR NOT STARTS_WITH(REVERSE(properties ->> 'orderId'), 'X-'), FALSE)
